// Commands as clients ask for them, and the reply of exec: data. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/create_request.h"
#include "daemon/limits.h"
#include "daemon/output_buffer.h"
#include "daemon/process_end.h"
#include "oci/json.h"
#include "rootfs/changes.h"

namespace hutch::daemon {

// What exec and background processes are asked alike.
struct CommandFields {
  std::vector<std::string> args;  // empty until UseImageCommand() when none is given
  StringMap env;
  std::string workdir, user;  // empty: the sandbox's
  bool has_stdin = false;     // else end of file at once
  std::string stdin_bytes;
  double timeout_seconds = 0;  // 0: none
  bool resume = false;         // a paused sandbox goes on
  bool merge_output = false;   // stderr goes where stdout goes
};

struct ExecFields : CommandFields {
  uint64_t max_output_bytes = 0;  // of each stream in the answer
  Encoding encoding = Encoding::kAuto;
  // Answer after so long, with what there is; the command goes on as a background process.
  std::optional<double> wait_seconds;
  bool track_files = true;
};

Result<ExecFields> ParseExecFields(const oci::Json& json, const Config& config);

// POST /v1/sandboxes/{id}/processes.
struct ProcessFields : CommandFields {
  bool stdin_open = false;  // input stays open after stdin_bytes
  bool terminal = false;
  uint16_t rows = 24, columns = 80;
  uint64_t log_bytes = kDefaultLogBytes;
};
Result<ProcessFields> ParseProcessFields(const oci::Json& json, const Config& config);
// The image's entrypoint and command where the request names no command. kInvalidArgument, field
// "command", when there is none.
Status UseImageCommand(const std::vector<std::string>& image_command, CommandFields* fields);
// Bytes given as text in `name`, or as base64 in `name`_base64.
void ParseBytes(oci::ObjectReader& reader, const std::string& name, std::string* bytes);
// "auto", "utf-8", "base64".
std::optional<Encoding> ParseEncoding(const std::string& text);

struct ExecResult {
  ProcessEnd end;
  CapturedOutput out, err;
  uint32_t process = 0;
  std::optional<rootfs::ChangeSet> files;  // nothing: not tracked, or it could not be told
};
oci::Json ExecJson(ExecResult result);
// The same without the output: the last event of a stream.
oci::Json ExecEndJson(const ExecResult& result);
oci::Json FilesJson(const std::optional<rootfs::ChangeSet>& files);
// Adds stdout and what is told of it, likewise stderr.
void AddOutput(CapturedOutput out, CapturedOutput err, oci::Json* json);

}  // namespace hutch::daemon
