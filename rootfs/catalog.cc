#include "rootfs/catalog.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr std::string_view kLowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kEnding = ".json";

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

// Lower-case letters, digits and those of `more`, a letter or digit first and, so that apt does not
// take "name-" as an order to remove it, no hyphen last.
bool IsWord(std::string_view word, std::string_view more, size_t max_bytes) {
  if (word.empty() || word.size() > max_bytes) return false;
  const auto plain = [](char c) { return kLowerAndDigits.find(c) != std::string_view::npos; };
  const auto good = [&](char c) { return plain(c) || more.find(c) != std::string_view::npos; };
  return plain(word.front()) && word.back() != '-' && std::all_of(word.begin(), word.end(), good);
}

// Parts joined by one of "._-" each, as in every reference; "sha256:latest" would read as a digest.
bool IsEntryName(std::string_view name) {
  if (!IsWord(name, "._-", kMaxCatalogNameBytes) || name == "sha256") return false;
  constexpr std::string_view kJoints = "._-";
  for (size_t i = 1; i < name.size(); ++i)
    if (kJoints.find(name[i - 1]) != std::string_view::npos &&
        kJoints.find(name[i]) != std::string_view::npos)
      return false;
  return kJoints.find(name.back()) == std::string_view::npos;
}
// Debian policy 5.6.1.
bool IsPackageName(std::string_view name) {
  return name.size() >= 2 && IsWord(name, "+-.", kMaxPackageNameBytes);
}

bool IsUser(const std::string& user) {
  const std::vector<std::string> ids = Split(user, ':');
  return ids.size() <= 2 && std::all_of(ids.begin(), ids.end(), [](const std::string& id) {
           return ParseUint(id, kMaxOwnerId).has_value();
         });
}

bool HasNul(const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(),
                     [](const std::string& text) { return text.find('\0') != std::string::npos; });
}

Status CheckNames(const CatalogEntry& entry) {
  if (!IsWord(entry.suite, ".-", kMaxPackageNameBytes)) return Invalid("not a suite", "suite");
  if (entry.components.empty()) return Invalid("at least one is needed", "components");
  for (const std::string& component : entry.components)
    if (!IsWord(component, "-", kMaxPackageNameBytes))
      return Invalid("not a component: \"" + component + "\"", "components");
  if (entry.packages.empty()) return Invalid("at least one is needed", "packages");
  for (const std::string& package : entry.packages)
    if (!IsPackageName(package))
      return Invalid("not a package name: \"" + package + "\"", "packages");
  return OkStatus();
}

Status CheckConfiguration(const CatalogEntry& entry) {
  if (entry.description.empty()) return Invalid("is required", "description");
  if (!IsUser(entry.user)) return Invalid("must be UID or UID:GID, up to 65535", "user");
  if (entry.working_dir.empty() || entry.working_dir[0] != '/' ||
      entry.working_dir.find('\0') != std::string::npos)
    return Invalid("must be an absolute path", "working_dir");
  for (const std::string& variable : entry.env)
    if (variable.find('=') == std::string::npos || variable[0] == '=')
      return Invalid("must be NAME=VALUE", "env");
  if (HasNul(entry.env)) return Invalid("holds a zero byte", "env");
  if (HasNul(entry.cmd)) return Invalid("holds a zero byte", "cmd");
  return OkStatus();
}

// Building runs what is in the packages as root on this host: only root may choose them.
Result<std::string> ReadTrusted(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd file,
                   Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));  // no FIFO waits
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return SysError(errno, path);
  if (!S_ISREG(about.st_mode))
    return Error{.code = Code::kNotAFile, .what = path + " is not a regular file"};
  if ((about.st_uid != 0 && about.st_uid != ::geteuid()) || (about.st_mode & 0022) != 0)
    return Error{.code = Code::kForbidden,
                 .what = path + " may be written by others than root",
                 .hint = "chown root FILE; chmod go-w FILE"};
  return ReadAll(file.get(), kMaxCatalogFileBytes);
}

Status CheckDirectory(const std::string& directory) {
  ASSIGN_OR_RETURN(const UniqueFd opened, Open(directory, O_RDONLY | O_DIRECTORY));
  struct stat about {};
  if (::fstat(opened.get(), &about) != 0) return SysError(errno, directory);
  if ((about.st_uid != 0 && about.st_uid != ::geteuid()) || (about.st_mode & 0022) != 0)
    return Error{.code = Code::kForbidden,
                 .what = directory + " may be written by others than root",
                 .hint = "chown root DIRECTORY; chmod go-w DIRECTORY"};
  return OkStatus();
}

bool IsBuiltIn(std::string_view name) {
  const auto& texts = CatalogTexts();
  return std::any_of(texts.begin(), texts.end(),
                     [&](const CatalogText& text) { return text.name == name; });
}

// Names of files that end in ".json", without it; empty when there is no such directory.
std::vector<std::string> FileNames(const std::string& directory) {
  std::vector<std::string> names;
  if (const auto files = ListDirectory(directory))
    for (const std::string& file : *files)
      if (file.ends_with(kEnding)) names.push_back(file.substr(0, file.size() - kEnding.size()));
  if (names.size() > kMaxCatalogFiles) names.resize(kMaxCatalogFiles);
  return names;
}

Result<CatalogEntry> ReadEntry(const std::string& path, const std::string& name) {
  if (!IsEntryName(name)) return Invalid(path + ": its name cannot be an image's", "name");
  if (IsBuiltIn(name))
    return Error{.code = Code::kExists,
                 .what = path + ": \"" + name + "\" is built in and cannot be replaced",
                 .field = "name"};
  ASSIGN_OR_RETURN(const std::string text, ReadTrusted(path));
  Result<CatalogEntry> entry = ParseCatalogEntry(name, text);
  if (!entry) {
    Error error = std::move(entry).error();
    error.what = path + ": " + error.what;
    return error;
  }
  entry->path = path;
  return entry;
}

}  // namespace

Result<CatalogEntry> ParseCatalogEntry(std::string_view name, std::string_view json) {
  ASSIGN_OR_RETURN(const oci::Json document,
                   oci::ParseJson(json, {.max_bytes = kMaxCatalogFileBytes, .max_depth = 4}));
  CatalogEntry entry;
  entry.name = name;
  RETURN_IF_ERROR(oci::ObjectReader(document, "")
                      .String("description", &entry.description, kMaxCatalogDescriptionBytes)
                      .String("suite", &entry.suite)
                      .Strings("components", &entry.components, kMaxCatalogComponents)
                      .Strings("packages", &entry.packages, kMaxCatalogPackages)
                      .Strings("env", &entry.env, kMaxCatalogWords)
                      .Strings("cmd", &entry.cmd, kMaxCatalogWords)
                      .String("user", &entry.user)
                      .String("working_dir", &entry.working_dir, kMaxEntryPathBytes)
                      .Done(oci::ObjectReader::Unknown::kRefuse));
  RETURN_IF_ERROR(CheckNames(entry));
  RETURN_IF_ERROR(CheckConfiguration(entry));
  return entry;
}

Catalog LoadCatalog(const std::string& directory) {
  Catalog catalog;
  for (const CatalogText& text : CatalogTexts()) {
    auto entry = ParseCatalogEntry(text.name, text.json);
    CHECK(entry.has_value());
    catalog.entries.push_back(*std::move(entry));
  }
  if (!PathExists(directory)) return catalog;
  if (const Status trusted = CheckDirectory(directory); !trusted) {
    catalog.refused.push_back({directory, trusted.error()});
    return catalog;
  }
  for (const std::string& name : FileNames(directory)) {
    const std::string path = directory + "/" + name + std::string(kEnding);
    auto entry = ReadEntry(path, name);
    if (entry)
      catalog.entries.push_back(*std::move(entry));
    else
      catalog.refused.push_back({path, std::move(entry).error()});
  }
  return catalog;
}

std::vector<std::string> CatalogNames(const std::string& directory) {
  std::vector<std::string> names;
  for (const CatalogText& text : CatalogTexts()) names.emplace_back(text.name);
  if (!CheckDirectory(directory)) return names;
  for (std::string& name : FileNames(directory))
    if (IsEntryName(name) && !IsBuiltIn(name)) names.push_back(std::move(name));
  return names;
}

Result<CatalogEntry> FindCatalogEntry(const std::string& directory, const std::string& name) {
  const Catalog catalog = LoadCatalog(directory);
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog.entries) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  for (const RefusedEntry& refused : catalog.refused)
    if (refused.path == directory + "/" + name + std::string(kEnding)) return refused.error;
  return Error{.code = Code::kNotFound,
               .what = "no catalog image \"" + name + "\"; there are: " + Join(names, ", "),
               .field = "name"};
}

}  // namespace hutch::rootfs
