#include "daemon/command_line.h"

#include <CLI/CLI.hpp>

namespace hutch::daemon {
namespace {

constexpr char kDefaultConfigPath[] = "/etc/hutch/hutchd.json";

struct OptionRow {
  const char* flag;
  std::string Config::*member;
  const char* help;
};
constexpr OptionRow kOptions[] = {
    {"--socket", &Config::socket, "listen here"},
    {"--state-dir", &Config::state_dir, "images and what else outlives a reboot"},
    {"--run-dir", &Config::run_dir, "live state; one daemon for each"},
    {"--log-format", &Config::log_format, "text or json"},
    {"--log-level", &Config::log_level, "debug, info, warning or error"},
    {"--pools", &Config::pools, "on or off: keep parts of sandboxes ready"},
    {"--cgroup-parent", &Config::cgroup_parent,
     "cgroup to make sandboxes' groups in, such as /hutch"},
    {"--init-path", &Config::init_path, "the agent program hutch-init"},
};

}  // namespace

Result<CommandLine> ParseCommandLine(int argc, char** argv) {
  CLI::App app(
      "hutchd: runs untrusted code in hardened sandboxes; see docs/api.md and docs/config.md");
  app.set_version_flag("--version", "hutchd " HUTCH_VERSION);
  std::optional<std::string> config_path;
  app.add_option("--config", config_path,
                 std::string("settings, default ") + kDefaultConfigPath + " where it exists");
  std::optional<std::string> values[std::size(kOptions)];
  for (size_t i = 0; i < std::size(kOptions); ++i)
    app.add_option(kOptions[i].flag, values[i], kOptions[i].help);

  CommandLine line;
  try {  // CLI11 knows no other way to say that it is done
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    line.exit_code = app.exit(error);
    return line;
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
