#include "tools/arguments.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <utility>

#include "tools/endpoint.h"

namespace hutch::tools {
namespace {

void AddOption(CLI::App* app, const OptionRow& row, Options* options) {
  CLI::Option* option = nullptr;
  if (const auto* flag = std::get_if<bool Options::*>(&row.field))
    option = app->add_flag(row.flags, options->**flag, row.help);
  if (const auto* text = std::get_if<std::string Options::*>(&row.field))
    option = app->add_option(row.flags, options->**text, row.help);
  if (const auto* list = std::get_if<std::vector<std::string> Options::*>(&row.field))
    option = app->add_option(row.flags, options->**list, row.help)->allow_extra_args(false);
  if (*row.value != '\0') option->type_name(row.value)->option_text(row.value);
}

const char* HelpFor(Names names) {
  switch (names) {
    case Names::kSandboxes:
      return "A sandbox's id or name";
    case Names::kImages:
      return "An image's name, name:tag or id";
    case Names::kCatalog:
      return "A name of the catalog (hutch image catalog lists them)";
    case Names::kShells:
      return "bash, zsh or fish";
    case Names::kFiles:
      return "A file or directory on this host";
    case Names::kCommand:
      return "The command and its arguments, behind --";
    case Names::kTemplates:
      return "A template's name";
    case Names::kProcesses:
      return "A background process of it (hutch ps lists them)";
    case Names::kPlaces:
      return "A path on this host, ID:/path in a sandbox, or - for a tar";
    case Names::kNetworks:
      return "A network's name (hutch network ls lists them)";
    case Names::kPools:
      return "A pool's name (hutch pool ls lists them)";
    case Names::kPresets:
      return "\"packages\", to find it on this machine";
    case Names::kForwarded:
      return "A port inside that is reached from the host (hutch port ls lists them)";
    case Names::kListening:
      return "A port inside: 3000, or with where the host listens 8080:3000, 127.0.0.1:8080:3000";
    case Names::kVolumes:
      return "A volume's name (hutch volume ls lists them)";
    case Names::kNothing:
      break;
  }
  return "";
}

void AddPositional(CLI::App* app, const Positional& row, Options* options) {
  CLI::Option* option = nullptr;
  if (const auto* text = std::get_if<std::string Options::*>(&row.field))
    option = app->add_option(row.name, options->**text, HelpFor(row.names));
  if (const auto* list = std::get_if<std::vector<std::string> Options::*>(&row.field))
    option = app->add_option(row.name, options->**list, HelpFor(row.names));
  if (option != nullptr) option->required(row.required)->option_text(" ");
}

void AddCommand(CLI::App* parent, const CommandRow& row, Options* options,
                const CommandRow** chosen) {
  CLI::App* app = parent->add_subcommand(row.name, row.help);
  app->footer("Example:\n  " + std::string(row.example));
  for (const OptionRow& option : AllOptions())
    if ((option.groups & (row.groups | kGlobal)) != 0) AddOption(app, option, options);
  for (const Positional& positional : row.positionals) AddPositional(app, positional, options);
  for (const CommandRow& child : row.children) AddCommand(app, child, options, chosen);
  if (!row.children.empty()) app->require_subcommand(1);
  if (row.run != nullptr) app->final_callback([chosen, &row] { *chosen = &row; });
}

// The row whose errors a mistake on the command line belongs to, by its first word.
int UsageExitCode(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    for (const CommandRow& row : Commands())
      if (word == row.name) return PassesExitCode(row) ? kExitOwnError : kExitUsage;
  return kExitUsage;
}

std::string Mistake(const std::string& what, bool had_separator) {
  std::string text = "hutch: " + what + "\n";
  if (!had_separator && what.find("not expected") != std::string::npos)
    text += "hint: put -- before the command to run, as in: hutch exec ID -- ls -la\n";
  return text + "hint: --help shows what is possible\n";
}

// CLI11 reports by exceptions; they end here.
void ParseFenced(CLI::App* app, std::vector<std::string> words, bool had_separator,
                 Arguments* parsed) {
  const int usage = UsageExitCode(words);
  const bool nothing_said = words.empty();
  std::reverse(words.begin(), words.end());  // CLI11 takes them last first
  try {
    app->parse(std::move(words));
  } catch (const CLI::CallForAllHelp&) {
    parsed->text = app->help("", CLI::AppFormatMode::All);
  } catch (const CLI::CallForHelp&) {
    parsed->text = app->help();
  } catch (const CLI::CallForVersion& version) {
    parsed->text = std::string(version.what()) + "\n";
  } catch (const CLI::Error& error) {
    const std::vector<std::string> unknown = app->remaining(true);
    const bool no_command = std::string_view(error.what()).find("subcommand") != std::string::npos;
    std::string what = error.what();
    if (no_command && !unknown.empty()) what = "\"" + unknown[0] + "\" is not a command";
    parsed->text = nothing_said ? app->help() : Mistake(what, had_separator);
    parsed->exit_code = usage;
  }
}

}  // namespace

Arguments ParseArguments(std::vector<std::string> words) {
  Arguments parsed;
  const auto separator = std::find(words.begin(), words.end(), "--");
  const bool had_separator = separator != words.end();
  std::vector<std::string> command;
  if (had_separator) command.assign(separator + 1, words.end());
  words.erase(separator, words.end());

  CLI::App app("hutch: hardened throw-away sandboxes for untrusted code", "hutch");
  app.set_version_flag("--version", "hutch " HUTCH_VERSION);
  app.require_subcommand(1);
  app.footer("hutch COMMAND --help shows a command's options and an example.");
  const CommandRow* chosen = nullptr;
  for (const OptionRow& row : AllOptions())
    if ((row.groups & kGlobal) != 0) AddOption(&app, row, &parsed.options);
  for (const CommandRow& row : Commands()) AddCommand(&app, row, &parsed.options, &chosen);
  ParseFenced(&app, words, had_separator, &parsed);
  if (!parsed.text.empty()) return parsed;

  Options& options = parsed.options;
  options.command.insert(options.command.end(), command.begin(), command.end());
  if (!options.socket.empty() && !options.host.empty()) {
    parsed.text = Mistake("--socket and --host exclude each other", true);
    parsed.exit_code = UsageExitCode(words);
    return parsed;
  }
  FillEndpoint(&options);
  // "run --template T COMMAND": there is no image that the first word could be.
  if (TakesCommand(*chosen) && !options.template_name.empty() && !options.image.empty())
    options.command.insert(options.command.begin(), std::exchange(options.image, {}));
  const bool makes_sandbox = (chosen->groups & kSandbox) != 0;
  if (makes_sandbox && options.image.empty() == options.template_name.empty()) {
    parsed.text =
        Mistake(std::string(chosen->name) + " needs either an IMAGE or --template", had_separator);
    parsed.exit_code = PassesExitCode(*chosen) ? kExitOwnError : kExitUsage;
  } else if (!TakesCommand(*chosen) && had_separator) {
    parsed.text = Mistake(std::string(chosen->name) + " takes no command behind --", true);
    parsed.exit_code = PassesExitCode(*chosen) ? kExitOwnError : kExitUsage;
  } else if (TakesCommand(*chosen) && !makes_sandbox && options.command.empty() &&
             !options.terminal) {
    parsed.text = Mistake(std::string(chosen->name) + " needs a command to run behind --", true);
    parsed.exit_code = kExitOwnError;
  } else {
    parsed.command = chosen;
  }
  return parsed;
}

}  // namespace hutch::tools
