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
struct Place {
  const char* directory;
  const char* file;
};
// In the order of the specification; the last one is for directories that are nothing but
// templates.
constexpr Place kPlaces[] = {{".devcontainer", "devcontainer.json"},
                             {".", ".devcontainer.json"},
                             {".", "devcontainer.json"}};

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

bool IsMissing(const Error& error) { return error.sys == ENOENT || error.sys == ENOTDIR; }

// Links may lead about below the template's directory, not out of it.
Result<UniqueFd> OpenBelow(int directory_fd, const char* name, const std::string& shown) {
  ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(directory_fd, name, Links::kBeneath));
  struct stat st {};
  ASSIGN_OR_RETURN(UniqueFd fd, path.Open(O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (::fstat(fd.get(), &st) != 0) return SysError(errno, "fstat " + shown);
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
    return Error{.code = Code::kNotAFile, .what = shown + " is no file", .field = "template"};
  RETURN_IF_ERROR(CheckOnlyOurs(fd.get(), shown));
  return fd;
}

Result<std::string> ReadTemplate(int directory_fd, const std::string& shown) {
  RETURN_IF_ERROR(CheckOnlyOurs(directory_fd, shown));
  for (const Place& place : kPlaces) {
    const std::string directory = shown + "/" + place.directory;
    const Result<UniqueFd> below = OpenBelow(directory_fd, place.directory, directory);
    if (!below.has_value() && IsMissing(below.error())) continue;
    if (!below.has_value()) return below.error();
    const Result<UniqueFd> file = OpenBelow(below->get(), place.file, directory + "/" + place.file);
    if (!file.has_value() && IsMissing(file.error())) continue;
    if (!file.has_value()) return file.error();
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

// The operator's directory; nothing where there is none.
Result<std::optional<UniqueFd>> TemplateLibrary::OpenAll() const {
  if (config_.templates_dir.empty()) return std::optional<UniqueFd>();
  Result<UniqueFd> all = Open(config_.templates_dir, O_RDONLY | O_DIRECTORY);
  if (!all.has_value() && all.error().code == Code::kNotFound) return std::optional<UniqueFd>();
  if (!all.has_value()) return std::move(all).error();
  RETURN_IF_ERROR(CheckOnlyOurs(all->get(), config_.templates_dir));
  return std::optional<UniqueFd>(std::move(*all));
}

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
  ASSIGN_OR_RETURN(const std::optional<UniqueFd> all, OpenAll());
  if (all) {
    const Result<UniqueFd> directory =
        OpenAt(all->get(), name, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
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
  ASSIGN_OR_RETURN(const std::optional<UniqueFd> all, OpenAll());
  if (all) {
    ASSIGN_OR_RETURN(names, ListDirectory(config_.templates_dir));
  }
  size_t count = 0;
  for (const std::string& name : names) {
    if (!IsName(name)) continue;
    const Result<UniqueFd> directory =
        OpenAt(all->get(), name, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
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
