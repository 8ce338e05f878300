// Options to the API's request bodies, with the sizes and times that people write turned into the
// API's units. Every error is kInvalidArgument and names the option.
#pragma once

#include <string_view>

#include "base/result.h"
#include "oci/json.h"
#include "tools/options.h"
#include "tools/terminal.h"

namespace hutch::tools {

// POST /v1/sandboxes. Reads the file of --relax-seccomp. Only what was said is in the body: the
// daemon owns the defaults.
Result<oci::Json> PlanCreateBody(const Options& options);

// What --network, --allow, --join and --net-limit say, as the API's "network"; null when none was
// given. Rules make it an allowlist.
Result<oci::Json> PlanNetwork(const Options& options);
// "3000", "8080:3000", "127.0.0.1:8080:3000", "[::1]::3000" as an item of "ports"; `flag` is what
// errors name.
Result<oci::Json> PlanPort(const char* flag, const std::string& text);

// "NAME:TARGET", and behind more colons ro, rw or size=SIZE, as an item of "volumes".
Result<oci::Json> PlanVolume(const std::string& text);

// POST .../exec; without a command it is the image's. `stdin_bytes` go as text when they are UTF-8,
// else as base64. With kOwnSandbox (run) environment, directory and user belong to the sandbox and
// are left out here.
enum class ExecIn { kOwnSandbox, kExistingSandbox };
Result<oci::Json> PlanExecBody(const Options& options, std::string_view stdin_bytes, ExecIn where);

// POST .../processes. Without a command the body has none: the caller adds a shell.
Result<oci::Json> PlanProcessBody(const Options& options, std::string_view stdin_bytes,
                                  const TerminalSize& size, ExecIn where);

// Options that contradict each other: -t and -i, -d, --wait, --stdin, --json, --max-output.
Status CheckExecOptions(const Options& options);

// What "?..." of .../output the options of logs ask for, without what stands before it; `now` is
// for
// --since. Empty, or "&tail_bytes=10&stream=stdout".
Result<std::string> PlanLogsQuery(const Options& options, WallTime now);

// "?label=a%3Db&state=running", or empty.
std::string PlanListQuery(const Options& options);

}  // namespace hutch::tools
