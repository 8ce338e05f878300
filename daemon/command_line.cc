#include "daemon/command_line.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "base/fault_point.h"
#include "daemon/tokens.h"
#include "runtime/step_names.h"

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
  text += HelpLine("--takeover", "follow the hutchd that runs there, and refuse no connection");
  text += HelpLine("--check", "say all that is wrong with the settings, and exit");
  text += HelpLine("--print-config", "print the settings in force and where each is from");
  text += HelpLine("--new-token NAME ROLE", "print a token for TCP and its row for the file");
  text += HelpLine("--list-fault-points", "print where tests may end it (HUTCH_FAULT)");
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

struct Words {
  std::optional<std::string> config_path, values[std::size(kOptions)];
  bool check = false, print = false, takeover = false;
};

CommandLine Printed(std::string text) {
  CommandLine line;
  line.action = CommandLine::Action::kPrint;
  line.text = std::move(text);
  return line;
}

std::string FaultList() {
  std::string text;
  for (const std::string_view name : kFaultPoints) text += std::string(name) + "\n";
  for (const std::string& name : runtime::StepFaultNames()) text += name + "\n";
  return text;
}

Result<CommandLine> PrintToken(int count, const char* const* arguments) {
  if (count != 2) return Invalid("--new-token needs a name and a role: read, use or admin");
  ASSIGN_OR_RETURN(const NewToken made, MakeToken(arguments[0], arguments[1]));
  return Printed(made.token + "\n" + made.row + "\n");
}

// "log_level" of "--log-level".
std::string KeyOf(const OptionRow& row) {
  std::string key = row.name + 2;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

ConfigSource SourceOf(const Words& words) {
  ConfigSource source;
  source.path = words.config_path.value_or(kDefaultConfigPath);
  if (words.config_path) source.file = ConfigSource::File::kRequired;
  for (size_t i = 0; i < std::size(kOptions); ++i)
    if (words.values[i])
      source.options.push_back({KeyOf(kOptions[i]), kOptions[i].member, *words.values[i]});
  return source;
}

// The configuration by itself, and the file of tokens that it leads to.
std::vector<Error> AllErrors(const ConfigReading& reading) {
  std::vector<Error> errors = reading.errors;
  if (!errors.empty() || reading.config.tcp.listen.empty()) return errors;
  const Result<Tokens> tokens = Tokens::Load(reading.config.tcp.tokens_file);
  if (!tokens.has_value()) errors.push_back(tokens.error());
  return errors;
}

Result<CommandLine> Read(const Words& words) {
  CommandLine line;
  line.source = SourceOf(words);
  line.takeover = words.takeover;
  ConfigReading reading = ReadConfig(line.source);
  if (reading.from_file) line.file = line.source.path;
  if (words.check || words.print) {
    line.action = CommandLine::Action::kPrint;
    line.errors = words.check ? AllErrors(reading) : reading.errors;
    if (line.errors.empty())
      line.text = words.print ? DescribeConfig(line.source, reading)
                              : (line.file.empty() ? "the defaults" : line.file) +
                                    std::string(": nothing is wrong\n");
    return line;
  }
  if (!reading.errors.empty()) return reading.errors.front();
  line.config = std::move(reading.config);
  return line;
}

}  // namespace

Result<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  Words words;
  for (int at = 1; at < argc;) {
    const std::string_view word = argv[at];
    if (word == "--help" || word == "--version")
      return Printed(word == "--help" ? HelpText() : "hutchd " HUTCH_VERSION "\n");
    if (word == "--new-token") return PrintToken(argc - at - 1, argv + at + 1);
    if (word == "--list-fault-points") return Printed(FaultList());
    if (word == "--check" || word == "--print-config" || word == "--takeover") {
      (word == "--check"      ? words.check
       : word == "--takeover" ? words.takeover
                              : words.print) = true;
      ++at;
      continue;
    }
    size_t row = 0;
    const std::string_view name = word.substr(0, word.find('='));
    while (row < std::size(kOptions) && name != kOptions[row].name) ++row;
    if (row == std::size(kOptions) && name != "--config")
      return Invalid("unknown option " + std::string(word));
    ASSIGN_OR_RETURN(std::string value, TakeValue(argc, argv, &at));
    (name == "--config" ? words.config_path : words.values[row]) = std::move(value);
  }
  return Read(words);
}

}  // namespace hutch::daemon
