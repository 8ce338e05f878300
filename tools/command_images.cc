// image pull, import, build, ls, inspect, rm.
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "tools/commands.h"
#include "tools/show_progress.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

std::string TargetOf(const std::string& reference) {
  return "/v1/images/" + EncodeSegment(reference);
}

constexpr size_t kMaxPasswordBytes = 16384;

struct ImageLine {
  std::string id, created, user;
  std::vector<std::string> references;
  uint64_t size_bytes = 0, unique_bytes = 0, layers = 0;
};

Result<ImageLine> ReadLine(const Json& image) {
  ImageLine line;
  RETURN_IF_ERROR(oci::ObjectReader(image, "image")
                      .String("id", &line.id)
                      .String("created", &line.created)
                      .String("user", &line.user)
                      .Strings("references", &line.references)
                      .Uint("size_bytes", &line.size_bytes)
                      .Uint("unique_bytes", &line.unique_bytes)
                      .Uint("layers", &line.layers)
                      .Done(Unknown::kIgnore));
  return line;
}

std::string ShortId(const std::string& id) {
  const size_t colon = id.find(':');
  return id.substr(colon == std::string::npos ? 0 : colon + 1, 12);
}

Result<int> MakeImage(Context& context, const char* target, const Json& body) {
  ASSIGN_OR_RETURN(const Json image, PostShowingProgress(context, target, body));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(image));
    return 0;
  }
  ASSIGN_OR_RETURN(const ImageLine line, ReadLine(image));
  RETURN_IF_ERROR(Print(line.id + "\n"));
  return 0;
}

Json ArrayOf(const Json& object, const char* name) {
  const auto member = object.is_object() ? object.find(name) : object.end();
  return member != object.end() && member->is_array() ? *member : Json::array();
}

}  // namespace

Result<int> RunImagePull(Context& context) {
  const Options& options = context.options;
  Json body = {{"reference", options.reference}};
  if (options.plain_http) body["plain_http"] = true;
  if (options.password_stdin != !options.username.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "--username and --password-stdin go together",
                 .hint = "a password in an argument would be seen by every user of the host"};
  if (options.password_stdin) {
    ASSIGN_OR_RETURN(std::string password, ReadAll(STDIN_FILENO, kMaxPasswordBytes));
    while (password.ends_with('\n') || password.ends_with('\r')) password.pop_back();
    body["username"] = options.username;
    body["password"] = std::move(password);
  }
  return MakeImage(context, "/v1/images/pull", body);
}

Result<int> RunImageImport(Context& context) {
  // The daemon has another working directory.
  char* full = ::realpath(context.options.path.c_str(), nullptr);
  if (full == nullptr) return SysError(errno, context.options.path);
  Json body = {{"path", full}};
  std::free(full);
  if (!context.options.reference.empty()) body["reference"] = context.options.reference;
  return MakeImage(context, "/v1/images/import", body);
}

Result<int> RunImageBuild(Context& context) {
  return MakeImage(context, "/v1/images/build", {{"name", context.options.name}});
}

Result<int> RunImageList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/images"));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  oci::ObjectReader reader(reply, "");
  const Json* images = reader.Member("images");
  if (images == nullptr || !images->is_array())
    return Error{.what = "the daemon's reply has no list of images"};
  Table table({{"REFERENCES"},
               {"ID"},
               {"USER"},
               {"LAYERS", Align::kRight},
               {"SIZE", Align::kRight},
               {"ALONE", Align::kRight},
               {"CREATED"}});
  std::string ids;
  for (const Json& image : *images) {
    ASSIGN_OR_RETURN(const ImageLine line, ReadLine(image));
    ids += line.id + "\n";
    table.Add({line.references.empty() ? "-" : Join(line.references, ", "), ShortId(line.id),
               line.user, std::to_string(line.layers), FormatSize(line.size_bytes),
               FormatSize(line.unique_bytes), line.created.substr(0, 10)});
  }
  RETURN_IF_ERROR(Print(context.options.ids_only ? ids : table.Render(context.colours)));
  return 0;
}

Result<int> RunImageCatalog(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/catalog"));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  Table table({{"NAME"}, {"IMAGE"}, {"PACKAGES", Align::kRight}, {"FROM"}, {"DESCRIPTION"}});
  std::string names;
  for (const Json& entry : ArrayOf(reply, "entries")) {
    std::string name, image, path, description;
    std::vector<std::string> packages;
    RETURN_IF_ERROR(oci::ObjectReader(entry, "entry")
                        .String("name", &name)
                        .String("image", &image)
                        .String("path", &path)
                        .String("description", &description)
                        .Strings("packages", &packages)
                        .Done(Unknown::kIgnore));
    names += name + "\n";
    table.Add({name, image.empty() ? "-" : ShortId(image), std::to_string(packages.size()),
               path.empty() ? "built in" : path, description});
  }
  RETURN_IF_ERROR(Print(context.options.ids_only ? names : table.Render(context.colours)));
  for (const Json& refused : ArrayOf(reply, "refused")) {
    std::string message;
    oci::ObjectReader reader(refused, "refused");
    if (const Json* error = reader.Member("error"))
      RETURN_IF_ERROR(
          oci::ObjectReader(*error, "error").String("message", &message).Done(Unknown::kIgnore));
    Note("not an entry: " + Printable(message));
  }
  return 0;
}

Result<int> RunImageInspect(Context& context) {
  ASSIGN_OR_RETURN(const Json image, context.client.Get(TargetOf(context.options.id)));
  RETURN_IF_ERROR(PrintJsonText(image));
  return 0;
}

Result<int> RunImageRemove(Context& context) {
  int exit_code = 0;
  for (const std::string& reference : context.options.ids) {
    const auto reply = context.client.Delete(TargetOf(reference));
    if (!reply) {
      PrintError(reply.error(), context.options);
      exit_code = kExitFailed;  // and on with the others
      continue;
    }
    if (context.options.json) {
      RETURN_IF_ERROR(PrintJsonText(*reply));
      continue;
    }
    uint64_t freed = 0;
    oci::ObjectReader reader(*reply, "");
    if (const Json* removed = reader.Member("removed"))
      RETURN_IF_ERROR(oci::ObjectReader(*removed, "removed")
                          .Uint("freed_bytes", &freed)
                          .Done(Unknown::kIgnore));
    RETURN_IF_ERROR(Print(reference + ": " + FormatSize(freed) + " freed\n"));
  }
  return exit_code;
}

}  // namespace hutch::tools
