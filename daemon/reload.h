// Reads the configuration again while the daemon runs (SIGHUP): all of it is judged first, and only
// when nothing is wrong is what can change at once changed. On the loop's thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "daemon/access.h"
#include "daemon/config.h"
#include "daemon/config_source.h"
#include "daemon/watching.h"

namespace hutch::daemon {

LogLevel LogLevelOf(const Config& config);
LogFormat LogFormatOf(const Config& config);

class Reloader {
 public:
  struct Parts {  // all borrowed
    Config& config;
    ConfigSource source;
    std::string file;  // that was read at the start; empty: none
    Audit& audit;
    Watching& watching;
    Access& access;
    std::function<void()> applied = {};  // hands on what parts keep copies of
  };
  explicit Reloader(Parts parts);

  // Never fails: an error is logged, told to systemd and shown by ToJson(), and all stays as it
  // was.
  void Reload();
  // {"file", "read_at", "reload_error", "restart_needed"}
  oci::Json ToJson() const;

 private:
  void Refuse(const std::vector<Error>& errors);
  void Apply(const ConfigReading& reading, Tokens tokens);

  Parts parts_;
  WallTime read_at_;
  std::string error_;                        // of the last reload, or ""
  std::vector<std::string> restart_needed_;  // keys that differ from what the daemon runs with
};

}  // namespace hutch::daemon
