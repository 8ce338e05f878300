#include "daemon/command_line.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

namespace hutch::daemon {
namespace {

constexpr char kDefaultConfigPath[] = "/etc/hutch/hutchd.json";

struct OptionRow {
  const char* name;
  std::string Config::*member;
  const char* value;
  const char* help;
};
constexpr OptionRow kOptions[] = {
    {"--socket", &Config::socket, "PATH", "listen here"},
    {"--state-dir", &Config::state_dir, "DIR", "images and what else outlives a reboot"},
    {"--run-dir", &Config::run_dir, "DIR", "live state; one daemon for each"},
    {"--log-format", &Config::log_format, "FORMAT", "text or json"},
    {"--log-level", &Config::log_level, "LEVEL", "debug, info, warning or error"},
    {"--pools", &Config::pools, "on|off", "keep parts of sandboxes ready"},
    {"--cgroup-parent", &Config::cgroup_parent, "PATH",
     "cgroup to make sandboxes' groups in, such as /hutch"},
    {"--init-path", &Config::init_path, "FILE", "the agent program hutch-init"},
};

std::string HelpLine(const std::string& option, const std::string& help) {
  std::string line = "  " + option;
  line.resize(std::max<size_t>(line.size() + 1, 26), ' ');
  return line + help + "\n";
}

std::string HelpText() {
  std::string text =
      "Usage: hutchd [OPTION VALUE]...\nRuns untrusted code in hardened sandboxes; docs/api.md, "
      "docs/config.md.\n\n";
  text += HelpLine("--config FILE",
                   std::string("settings; default ") + kDefaultConfigPath + " where it exists");
  for (const OptionRow& row : kOptions)
    text += HelpLine(std::string(row.name) + " " + row.value, row.help);
  return text + HelpLine("--version", "print the version") + HelpLine("--help", "print this");
}

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument,
               .what = std::move(what),
               .hint = "hutchd --help lists the options"};
}

// The value of the option at *at; moves *at behind it.
Result<std::string> TakeValue(int argc, const char* const* argv, int* at) {
  const std::string word = argv[(*at)++];
  const size_t equals = word.find('=');
  if (equals != std::string::npos) return word.substr(equals + 1);
  if (*at >= argc) return Invalid(word + " needs a value");
  return std::string(argv[(*at)++]);
}

}  // namespace

Result<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  std::optional<std::string> config_path, values[std::size(kOptions)];
  for (int at = 1; at < argc;) {
    const std::string_view word = argv[at];
    if (word == "--help" || word == "--version") {
      line.action = CommandLine::Action::kPrint;
      line.text = word == "--help" ? HelpText() : "hutchd " HUTCH_VERSION "\n";
      return line;
    }
    size_t row = 0;
    const std::string_view name = word.substr(0, word.find('='));
    while (row < std::size(kOptions) && name != kOptions[row].name) ++row;
    if (row == std::size(kOptions) && name != "--config")
      return Invalid("unknown option " + std::string(word));
    ASSIGN_OR_RETURN(std::string value, TakeValue(argc, argv, &at));
    (name == "--config" ? config_path : values[row]) = std::move(value);
  }
  const Status file = ApplyConfigFile(config_path.value_or(kDefaultConfigPath), &line.config);
  if (!file.has_value() && (config_path || file.error().code != Code::kNotFound))
    return file.error();
  for (size_t i = 0; i < std::size(kOptions); ++i)
    if (values[i]) line.config.*kOptions[i].member = *values[i];
  RETURN_IF_ERROR(CheckConfig(line.config));
  return line;
}

}  // namespace hutch::daemon
