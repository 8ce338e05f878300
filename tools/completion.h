// Completion of the command line. The shell's script only asks `hutch __complete WORD...`; all
// knowledge is here, so it cannot fall behind the tables.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace hutch::tools {

// Names of a kind that only the daemon knows (sandboxes, images, the catalog, processes). `before`
// is the positional that stands before: the sandbox of the processes.
using NameSource = std::function<std::vector<std::string>(Names kind, const std::string& before)>;

// Candidates for the last of `words` (which may be empty), the words behind "hutch".
std::vector<std::string> Complete(std::span<const std::string> words, const NameSource& source);

// `hutch __complete`: prints candidates, one a line. Never fails and never waits for long: without
// a daemon there are fewer of them.
void PrintCompletions(std::span<const std::string> words);

// The script for "bash", "zsh" or "fish"; nullptr for another shell.
const char* CompletionScript(const std::string& shell);

}  // namespace hutch::tools
