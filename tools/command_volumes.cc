// volume create, ls, inspect, rm, grow, copy, export, import, prune.
#include "base/text.h"
#include "tools/archive_stream.h"
#include "tools/commands.h"
#include "tools/show_progress.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr char kDefaultSize[] = "1GiB";

std::string PathOf(const std::string& name, const char* more = "") {
  return "/v1/volumes/" + EncodeSegment(name) + more;
}

Result<uint64_t> SizeOf(const std::string& text) {
  auto size = ParseSize(text);
  if (size) return size;
  return Error{.code = Code::kInvalidArgument,
               .what = size.error().what,
               .hint = "write 512MiB, 10GiB or bytes"};
}

Result<int> PrintName(const Context& context, const Json& volume) {
  std::string name;
  RETURN_IF_ERROR(oci::ObjectReader(volume, "volume").String("name", &name).Done(Unknown::kIgnore));
  if (context.options.json)
    RETURN_IF_ERROR(PrintJsonText(volume));
  else
    RETURN_IF_ERROR(Print(Printable(name) + "\n"));
  return 0;
}

struct VolumeLine {
  std::string name, state, created_at, users;
  uint64_t size = 0, used = 0, disk = 0;
};

Result<VolumeLine> ReadVolume(const Json& volume) {
  VolumeLine line;
  oci::ObjectReader reader(volume, "volumes");
  reader.String("name", &line.name)
      .String("state", &line.state)
      .String("created_at", &line.created_at)
      .Uint("size_bytes", &line.size)
      .Uint("used_bytes", &line.used)
      .Uint("disk_bytes", &line.disk);
  const Json* sandboxes = reader.Member("sandboxes");
  RETURN_IF_ERROR(reader.Done(Unknown::kIgnore));
  if (sandboxes == nullptr || !sandboxes->is_array()) return line;
  for (const Json& sandbox : *sandboxes) {
    std::string id, name;
    RETURN_IF_ERROR(oci::ObjectReader(sandbox, "sandboxes")
                        .String("id", &id)
                        .String("name", &name)
                        .Done(Unknown::kIgnore));
    line.users += (line.users.empty() ? "" : " ") + (name.empty() ? id : name);
  }
  return line;
}

Request ExportRequest(const Options& options) {
  return {.target = PathOf(options.id, "/archive"), .accept = "*/*"};
}

}  // namespace

Result<int> RunVolumeCreate(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const uint64_t size, SizeOf(options.size.empty() ? kDefaultSize : options.size));
  Json body = {{"name", options.id}, {"size_bytes", size}};
  if (!options.owner.empty()) body["owner"] = options.owner;
  for (const std::string& label : options.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos)
      return Error{.code = Code::kInvalidArgument, .what = "--label: write KEY=VALUE"};
    body["labels"][label.substr(0, equals)] = label.substr(equals + 1);
  }
  ASSIGN_OR_RETURN(const Json volume, context.client.Post("/v1/volumes", body));
  return PrintName(context, volume);
}

Result<int> RunVolumeList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/volumes"));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  ASSIGN_OR_RETURN(const std::vector<Json> list, ListIn(reply, "volumes"));
  Table table({{"NAME"},
               {"SIZE", Align::kRight},
               {"USED", Align::kRight},
               {"ON DISK", Align::kRight},
               {"AGE", Align::kRight},
               {"USED BY"}});
  std::string names;
  for (const Json& volume : list) {
    ASSIGN_OR_RETURN(const VolumeLine line, ReadVolume(volume));
    names += Printable(line.name) + "\n";
    const bool ready = line.state == "ready";
    table.Add({line.name, ready ? Cell(FormatSize(line.size)) : Cell("damaged", Colour::kRed),
               FormatSize(line.used), FormatSize(line.disk), Age(line.created_at),
               line.users.empty() ? "-" : line.users});
  }
  RETURN_IF_ERROR(Print(context.options.ids_only ? names : table.Render(context.colours)));
  return 0;
}

Result<int> RunVolumeInspect(Context& context) {
  ASSIGN_OR_RETURN(const Json volume, context.client.Get(PathOf(context.options.id)));
  RETURN_IF_ERROR(PrintJsonText(volume));
  return 0;
}

Result<int> RunVolumeRemove(Context& context) {
  int exit_code = 0;
  for (const std::string& name : context.options.ids) {
    const auto removed = context.client.Delete(PathOf(name));
    if (removed && !context.options.json) RETURN_IF_ERROR(Print(name + "\n"));
    if (removed) continue;
    PrintError(removed.error(), context.options);
    exit_code = kExitFailed;  // and on with the others
  }
  return exit_code;
}

Result<int> RunVolumeGrow(Context& context) {
  ASSIGN_OR_RETURN(const uint64_t size, SizeOf(context.options.size));
  ASSIGN_OR_RETURN(const Json volume,
                   context.client.Call({.method = "PATCH",
                                        .target = PathOf(context.options.id),
                                        .body = oci::PrintJson({{"size_bytes", size}})}));
  if (context.options.json) RETURN_IF_ERROR(PrintJsonText(volume));
  return 0;
}

Result<int> RunVolumeCopy(Context& context) {
  const std::string target = PathOf(context.options.id, "/copy");
  ASSIGN_OR_RETURN(const Json volume, PostShowingProgress(context, target.c_str(),
                                                          {{"to", context.options.reference}}));
  return PrintName(context, volume);
}

Result<int> RunVolumeExport(Context& context) {
  return DownloadArchive(context, ExportRequest(context.options),
                         {.path = context.options.path,
                          .option = "a FILE",
                          .stage = "export",
                          .subject = context.options.id});
}

Result<int> RunVolumeImport(Context& context) {
  ASSIGN_OR_RETURN(
      const Json volume,
      UploadArchive(context, {.method = "PUT", .target = PathOf(context.options.id, "/archive")},
                    {.path = context.options.path,
                     .option = "a FILE",
                     .stage = "import",
                     .subject = context.options.id}));
  if (context.options.json) RETURN_IF_ERROR(PrintJsonText(volume));
  return 0;
}

Result<int> RunVolumePrune(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const Json reply,
                   context.client.Post("/v1/volumes/prune",
                                       {{"dry_run", !options.yes}, {"labels", options.selectors}}));
  if (options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  std::vector<std::string> names;
  uint64_t freed = 0;
  RETURN_IF_ERROR(oci::ObjectReader(reply, "")
                      .Strings("volumes", &names)
                      .Uint("freed_bytes", &freed)
                      .Done(Unknown::kIgnore));
  std::string text;
  for (const std::string& name : names)
    text += (options.yes ? "removed " : "would remove ") + Printable(name) + "\n";
  RETURN_IF_ERROR(
      Print(text + FormatSize(freed) + (options.yes ? " freed\n" : " would be freed\n")));
  if (!options.yes && !names.empty()) Note("with --yes they are removed");
  return 0;
}

}  // namespace hutch::tools
