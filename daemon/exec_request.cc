#include "daemon/exec_request.h"

#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::ObjectReader;

Status ParseCommand(ObjectReader& reader, std::vector<std::string>* args) {
  const oci::Json* command = reader.Member("command");
  if (command == nullptr) {
    args->clear();  // the image's: UseImageCommand()
  } else if (command->is_string()) {
    *args = {"/bin/sh", "-c", command->get<std::string>()};
  } else {
    reader.Strings("command", args, kMaxCommandArgs);
    if (args->empty() || args->front().empty()) reader.Fail("command", "must name a program");
  }
  for (const std::string& arg : *args)
    if (arg.find('\0') != std::string::npos) reader.Fail("command", "holds a NUL");
  return OkStatus();
}

void ParseStdin(ObjectReader& reader, CommandFields* fields) {
  fields->has_stdin = reader.Member("stdin") != nullptr || reader.Member("stdin_base64") != nullptr;
  ParseBytes(reader, "stdin", &fields->stdin_bytes);
}

struct EncodingRow {
  const char* name;
  Encoding encoding;
};
constexpr EncodingRow kEncodings[] = {
    {"auto", Encoding::kAuto}, {"utf-8", Encoding::kUtf8}, {"base64", Encoding::kBase64}};

Status ParseCommandFields(ObjectReader& reader, CommandFields* fields) {
  RETURN_IF_ERROR(ParseCommand(reader, &fields->args));
  reader.StringMap("env", &fields->env)
      .String("workdir", &fields->workdir)
      .String("user", &fields->user, 256);
  ParseStdin(reader, fields);
  reader.Number("timeout_seconds", &fields->timeout_seconds, 0, 1e9)
      .Bool("merge_output", &fields->merge_output)
      .Bool("resume", &fields->resume);
  return OkStatus();
}

Status CheckCommandFields(const CommandFields& fields) {
  RETURN_IF_ERROR(CheckEnv(fields.env, "env"));
  return CheckWorkdir(fields.workdir, "workdir");
}

Error AboveCeiling(const std::string& ceiling, std::string field) {
  return Error{.code = Code::kLimit,
               .what = "above the operator's ceiling of " + ceiling,
               .field = std::move(field)};
}

// 0 asks for the most there is.
Status KeepTimeout(double ceiling, double* seconds) {
  if (ceiling <= 0) return OkStatus();
  if (*seconds == 0) *seconds = ceiling;
  if (*seconds <= ceiling) return OkStatus();
  return AboveCeiling(std::to_string(ceiling), "timeout_seconds");
}

void ParseTerminal(ObjectReader& reader, ProcessFields* fields) {
  const oci::Json* terminal = reader.Member("terminal");
  if (terminal == nullptr) return;
  if (terminal->is_boolean()) {
    fields->terminal = terminal->get<bool>();
    return;
  }
  fields->terminal = true;
  uint64_t rows = fields->rows, columns = fields->columns;
  ObjectReader size(*terminal, "terminal");
  size.Uint("rows", &rows, 1, UINT16_MAX).Uint("columns", &columns, 1, UINT16_MAX);
  const Status done = size.Done(ObjectReader::Unknown::kRefuse);
  if (!done.has_value()) reader.Fail("terminal", done.error().what);
  fields->rows = static_cast<uint16_t>(rows);
  fields->columns = static_cast<uint16_t>(columns);
}

}  // namespace

Status UseImageCommand(const std::vector<std::string>& image_command, CommandFields* fields) {
  if (!fields->args.empty()) return OkStatus();
  if (image_command.empty() || image_command.front().empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "command is required: the image has none of its own",
                 .field = "command"};
  fields->args = image_command;
  return OkStatus();
}

void ParseBytes(ObjectReader& reader, const std::string& name, std::string* bytes) {
  const std::string name_base64 = name + "_base64";
  const oci::Json* text = reader.Member(name.c_str());
  const oci::Json* base64 = reader.Member(name_base64.c_str());
  if (text != nullptr && base64 != nullptr)
    reader.Fail(name_base64.c_str(), "\"" + name + "\" is given, too");
  reader.String(name.c_str(), bytes, kMaxBodyBytes);
  if (base64 == nullptr) return;
  std::string encoded;
  reader.String(name_base64.c_str(), &encoded, kMaxBodyBytes);
  if (!Base64Decode(encoded, bytes)) reader.Fail(name_base64.c_str(), "is not base64");
}

std::optional<Encoding> ParseEncoding(const std::string& text) {
  for (const EncodingRow& row : kEncodings)
    if (text == row.name) return row.encoding;
  return std::nullopt;
}

Result<ExecFields> ParseExecFields(const oci::Json& json, const Config& config) {
  ExecFields fields;
  fields.max_output_bytes = config.defaults.max_output_bytes;
  const Amounts& ceilings = config.ceilings;
  ObjectReader reader(json, "");
  const bool waits = reader.Member("wait_seconds") != nullptr;
  // Whoever waits for a while does not say how long the command may live.
  fields.timeout_seconds = waits ? 0 : config.defaults.exec_timeout_seconds;
  RETURN_IF_ERROR(ParseCommandFields(reader, &fields));
  double wait_seconds = 0;
  std::string encoding = "auto";
  reader.Uint("max_output_bytes", &fields.max_output_bytes, 0, uint64_t{1} << 40)
      .Number("wait_seconds", &wait_seconds, 0, static_cast<double>(kMaxWaitSeconds))
      .String("encoding", &encoding, 16)
      .Bool("track_files", &fields.track_files);
  const std::optional<Encoding> parsed = ParseEncoding(encoding);
  if (!parsed) reader.Fail("encoding", "must be auto, utf-8 or base64");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  RETURN_IF_ERROR(CheckCommandFields(fields));
  fields.encoding = *parsed;
  if (waits) fields.wait_seconds = wait_seconds;
  RETURN_IF_ERROR(
      KeepTimeout(waits ? config.process_timeout_ceiling_seconds : ceilings.exec_timeout_seconds,
                  &fields.timeout_seconds));
  if (ceilings.max_output_bytes > 0 && fields.max_output_bytes > ceilings.max_output_bytes)
    return AboveCeiling(std::to_string(ceilings.max_output_bytes), "max_output_bytes");
  return fields;
}

Result<ProcessFields> ParseProcessFields(const oci::Json& json, const Config& config) {
  ProcessFields fields;
  ObjectReader reader(json, "");
  RETURN_IF_ERROR(ParseCommandFields(reader, &fields));
  ParseTerminal(reader, &fields);
  reader.Bool("stdin_open", &fields.stdin_open)
      .Uint("log_bytes", &fields.log_bytes, kMinLogBytes, kMaxLogBytes);
  if (fields.terminal && fields.merge_output)
    reader.Fail("merge_output", "a terminal has one stream anyway");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  RETURN_IF_ERROR(CheckCommandFields(fields));
  RETURN_IF_ERROR(KeepTimeout(config.process_timeout_ceiling_seconds, &fields.timeout_seconds));
  if (fields.terminal) fields.stdin_open = true;
  return fields;
}

void AddOutput(CapturedOutput out, CapturedOutput err, oci::Json* json) {
  struct Row {
    const char* name;
    CapturedOutput* output;
  };
  for (const Row& row : {Row{"stdout", &out}, Row{"stderr", &err}}) {
    const std::string name(row.name);
    (*json)[name] = std::move(row.output->text);
    (*json)[name + "_encoding"] = row.output->encoding;
    (*json)[name + "_bytes"] = row.output->total_bytes;
    (*json)[name + "_truncated"] = row.output->truncated;
    if (row.output->replaced) (*json)[name + "_replaced"] = true;
  }
}

oci::Json FilesJson(const std::optional<rootfs::ChangeSet>& files) {
  if (!files) return nullptr;
  oci::Json list = oci::Json::array();
  for (const rootfs::FileChange& change : files->changes) {
    const bool text = IsUtf8(change.path);
    oci::Json entry = {{"path", text ? change.path : Base64Encode(change.path)},
                       {"action", rootfs::ChangeActionName(change.action)},
                       {"size_bytes", change.size_bytes},
                       {"type", rootfs::FileKindName(change.kind)}};
    if (!text) entry["path_encoding"] = "base64";
    list.push_back(std::move(entry));
  }
  return list;
}

namespace {

void AddFiles(const std::optional<rootfs::ChangeSet>& files, oci::Json* json) {
  (*json)["files_changed"] = FilesJson(files);
  (*json)["files_changed_truncated"] = files && (!files->complete);
}

}  // namespace

oci::Json ExecEndJson(const ExecResult& result) {
  oci::Json json;
  AddEnd(result.end, &json);
  json["stdout_bytes"] = result.out.total_bytes;
  json["stderr_bytes"] = result.err.total_bytes;
  AddFiles(result.files, &json);
  json["process_id"] = "p" + std::to_string(result.process);
  return json;
}

oci::Json ExecJson(ExecResult result) {
  oci::Json json;
  AddEnd(result.end, &json);
  AddOutput(std::move(result.out), std::move(result.err), &json);
  AddFiles(result.files, &json);
  json["process_id"] = "p" + std::to_string(result.process);
  return json;
}

}  // namespace hutch::daemon
