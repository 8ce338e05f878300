// files ls, cat, rm, mkdir: a sandbox's files, one at a time.
#include <unistd.h>

#include "base/base64.h"
#include "base/file.h"
#include "base/text.h"
#include "tools/commands.h"
#include "tools/places.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

struct FileLine {
  std::string path, path_base64, type, mode, mtime, target;
  uint64_t size = 0;
};

Result<FileLine> ReadEntry(const Json& entry) {
  FileLine line;
  RETURN_IF_ERROR(oci::ObjectReader(entry, "entry")
                      .String("path", &line.path)
                      .String("path_base64", &line.path_base64)
                      .String("type", &line.type)
                      .String("mode", &line.mode)
                      .String("mtime", &line.mtime)
                      .String("target", &line.target)
                      .Uint("size", &line.size)
                      .Done(Unknown::kIgnore));
  if (!line.path_base64.empty() && !Base64Decode(line.path_base64, &line.path))
    return Error{.code = Code::kInvalidArgument, .what = "malformed base64"};
  return line;
}

Status AddPage(const Json& reply, Table* table, std::string* next) {
  next->clear();
  oci::ObjectReader reader(reply, "");
  reader.String("next", next);
  const Json* entries = reader.Member("entries");
  RETURN_IF_ERROR(reader.Done(Unknown::kIgnore));
  if (entries == nullptr || !entries->is_array())
    return Error{.what = "the daemon's reply has no entries"};
  for (const Json& entry : *entries) {
    ASSIGN_OR_RETURN(const FileLine line, ReadEntry(entry));
    std::string name = BaseName(line.path);
    if (line.type == "directory") name += "/";
    if (line.type == "symlink") name += " -> " + line.target;
    const Colour colour = line.type == "directory" ? Colour::kBold : Colour::kNone;
    table->Add({line.mode, FormatSize(line.size), line.mtime.substr(0, 19), Cell(name, colour)});
  }
  return OkStatus();
}

}  // namespace

Result<int> RunFilesList(Context& context) {
  ASSIGN_OR_RETURN(const Place place, ParseRemotePlace(context.options.source));
  const std::string target =
      "/v1/sandboxes/" + EncodeSegment(place.sandbox) + "/files?path=" + EncodeSegment(place.path);
  Table table({{"MODE"}, {"SIZE", Align::kRight}, {"MODIFIED"}, {"NAME"}});
  std::string next;
  do {
    const std::string cursor = next.empty() ? "" : "&cursor=" + EncodeSegment(next);
    ASSIGN_OR_RETURN(const Json reply, context.client.Get(target + cursor));
    if (context.options.json) RETURN_IF_ERROR(PrintJsonText(reply));
    RETURN_IF_ERROR(AddPage(reply, &table, &next));
  } while (!next.empty());
  if (!context.options.json) RETURN_IF_ERROR(Print(table.Render(context.colours)));
  return 0;
}

Result<int> RunFilesPrint(Context& context) {
  for (const std::string& text : context.options.places) {
    ASSIGN_OR_RETURN(const Place place, ParseRemotePlace(text));
    const Status printed = context.client.Download(
        {.target = FileTarget(place), .accept = "*/*"},
        [](std::string_view bytes) { return WriteAll(STDOUT_FILENO, bytes); });
    if (!printed && printed.error().sys == EPIPE) return 0;  // files cat ... | head
    if (!printed) return printed.error();
  }
  return 0;
}

Result<int> RunFilesRemove(Context& context) {
  int exit_code = 0;
  for (const std::string& text : context.options.places) {
    ASSIGN_OR_RETURN(const Place place, ParseRemotePlace(text));
    const auto removed = context.client.Delete(
        FileTarget(place) + (context.options.recursive ? "?recursive=true" : ""));
    if (removed) continue;
    PrintError(removed.error(), context.options);
    exit_code = kExitFailed;  // and on with the others
  }
  return exit_code;
}

Result<int> RunFilesMakeDirectory(Context& context) {
  int exit_code = 0;
  for (const std::string& text : context.options.places) {
    ASSIGN_OR_RETURN(const Place place, ParseRemotePlace(text));
    Json body = {{"path", place.path}};
    if (context.options.parents) body["parents"] = true;
    const auto made =
        context.client.Post("/v1/sandboxes/" + EncodeSegment(place.sandbox) + "/files:mkdir", body);
    if (made) continue;
    PrintError(made.error(), context.options);
    exit_code = kExitFailed;
  }
  return exit_code;
}

}  // namespace hutch::tools
