// Where the configuration comes from, so that it can be read again, told whole, and judged with all
// that is wrong at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "oci/json.h"

namespace hutch::daemon {

struct ConfigSource {
  enum class File { kOptional, kRequired };
  // A key of the table that the command line sets.
  struct Option {
    std::string key;
    std::string Config::*member;
    std::string value;
  };
  std::string path;
  File file = File::kOptional;
  std::vector<Option> options;
};

struct ConfigReading {
  Config config;              // of use when there are no errors
  std::vector<Error> errors;  // each with its field, or with the file's name in its text
  bool from_file = false;
  oci::Json document = oci::Json::object();  // what the file says
};
// Defaults, the file, then the options. What is wrong is left out and the rest judged again, so
// that one reading names everything, up to kMaxConfigErrors.
ConfigReading ReadConfig(const ConfigSource& source);

// Whether a running daemon takes a changed value up, or needs a restart for it.
bool AppliesAtOnce(std::string_view key);

// Every value with where it comes from, as JSON, a line each. For people and programs: hutchd
// --print-config.
std::string DescribeConfig(const ConfigSource& source, const ConfigReading& reading);

// "field: what", for people.
std::string WithField(const Error& error);

}  // namespace hutch::daemon
