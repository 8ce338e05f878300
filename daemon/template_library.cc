#include "daemon/template_library.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/rooted_path.h"
#include "daemon/limits.h"
#include "rootfs/catalog.h"

namespace hutch::daemon {
namespace {

constexpr char kBuiltIn[] = "built-in";
// In the order of the specification; the last one is for directories that are nothing but
// templates.
constexpr const char* kPlaces[] = {".devcontainer/devcontainer.json", ".devcontainer.json",
                                   "devcontainer.json"};

bool IsName(const std::string& name) {
  const auto alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= kMaxNameBytes && alnum(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alnum(c) || c == '_' || c == '.' || c == '-'; });
}

// Whoever could write here could choose what sandboxes of others are.
Status CheckOnlyOurs(int fd, const std::string& shown) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return SysError(errno, "fstat " + shown);
  if ((st.st_mode & S_IWOTH) != 0)
    return Error{.code = Code::kForbidden,
                 .what = shown + " can be written by everyone",
                 .field = "template",
                 .hint = "chmod o-w " + shown};
  return OkStatus();
}

// Links may lead about below the template's directory, not out of it.
Result<std::string> ReadTemplate(int directory_fd, const std::string& shown) {
  RETURN_IF_ERROR(CheckOnlyOurs(directory_fd, shown));
  for (const char* place : kPlaces) {
    ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(directory_fd, place, Links::kBeneath));
    const Result<UniqueFd> file = path.OpenRegularFile();
    if (!file.has_value() && (file.error().sys == ENOENT || file.error().sys == ENOTDIR)) continue;
    if (!file.has_value()) return file.error();
    RETURN_IF_ERROR(CheckOnlyOurs(file->get(), shown + "/" + place));
    return ReadAll(file->get(), kMaxDevcontainerBytes);
  }
  return Error{.code = Code::kInvalidArgument,
               .what = "there is no devcontainer.json in " + shown,
               .field = "template"};
}

// A template for each image of the catalog: what daemon/templates has, or the image alone.
std::map<std::string, std::string> BuiltIn() {
  std::map<std::string, std::string> texts;
  for (const rootfs::CatalogText& entry : rootfs::CatalogTexts()) {
    const auto parsed = rootfs::ParseCatalogEntry(entry.name, entry.json);
    if (!parsed.has_value()) continue;  // a test of the catalog's own sees that
    texts[parsed->name] =
        oci::PrintJson({{"name", parsed->description}, {"image", parsed->name + ":latest"}});
  }
  for (const TemplateText& text : TemplateTexts())
    texts[std::string(text.name)] = std::string(text.json);
  return texts;
}

}  // namespace

FoundTemplate TemplateLibrary::Load(const std::string& name, int directory_fd) const {
  const std::string path = config_.templates_dir + "/" + name;
  Result<std::string> text = ReadTemplate(directory_fd, path);
  if (!text.has_value()) return {name, path, std::move(text).error()};
  return {name, path, ParseDevcontainer(*text, config_)};
}

Result<FoundTemplate> TemplateLibrary::Find(const std::string& name) const {
  if (!IsName(name))
    return Error{.code = Code::kInvalidArgument,
                 .what = "must be [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}",
                 .field = "template"};
  if (!config_.templates_dir.empty()) {
    const Result<UniqueFd> directory =
        Open(config_.templates_dir + "/" + name, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (directory.has_value()) return Load(name, directory->get());
    if (directory.error().code != Code::kNotFound) {
      Error error = directory.error();
      error.field = "template";
      return error;
    }
  }
  const auto texts = BuiltIn();
  if (const auto text = texts.find(name); text != texts.end())
    return FoundTemplate{name, kBuiltIn, ParseDevcontainer(text->second, config_)};
  return Error{.code = Code::kNotFound,
               .what = "no template \"" + name + "\"",
               .field = "template",
               .hint = "GET /v1/templates lists them"};
}

Result<std::vector<FoundTemplate>> TemplateLibrary::List() const {
  std::map<std::string, FoundTemplate> found;
  for (const auto& [name, text] : BuiltIn())
    found.emplace(name, FoundTemplate{name, kBuiltIn, ParseDevcontainer(text, config_)});
  std::vector<std::string> names;
  if (!config_.templates_dir.empty() && PathExists(config_.templates_dir)) {
    ASSIGN_OR_RETURN(names, ListDirectory(config_.templates_dir));
  }
  size_t count = 0;
  for (const std::string& name : names) {
    if (!IsName(name)) continue;
    const Result<UniqueFd> directory =
        Open(config_.templates_dir + "/" + name, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (!directory.has_value()) continue;  // a file, or gone meanwhile
    if (++count > kMaxTemplates)
      return Error{.code = Code::kLimit,
                   .what = config_.templates_dir + " has more than " +
                           std::to_string(kMaxTemplates) + " templates"};
    found.insert_or_assign(name, Load(name, directory->get()));
  }
  std::vector<FoundTemplate> list;
  for (auto& [name, one] : found) list.push_back(std::move(one));
  return list;
}

}  // namespace hutch::daemon
