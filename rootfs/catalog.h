// The catalog's entries: what images there are to be built from Debian packages. The format is
// docs/catalog.schema.json; building is rootfs/catalog_build.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

struct CatalogText {
  std::string_view name;
  std::string_view json;
};
const std::vector<CatalogText>& CatalogTexts();  // rootfs/catalog/*.json, built in

struct CatalogEntry {
  std::string name, description, suite;
  std::string user = "1000:1000";
  std::string working_dir = "/workspace";
  std::vector<std::string> components = {"main"};
  std::vector<std::string> packages, env, cmd;
  std::string path = {};  // the file of an operator's entry; empty: built in
};
// kInvalidArgument with the field: unknown members, what is missing, and every name that could mean
// something else to mmdebstrap, apt or a shell.
Result<CatalogEntry> ParseCatalogEntry(std::string_view name, std::string_view json);

struct RefusedEntry {
  std::string path;
  Error error;
};
struct Catalog {
  std::vector<CatalogEntry> entries;  // built in, then the operator's, each sorted by name
  std::vector<RefusedEntry> refused;  // files of the operator's that are no entries
};
// Reads <directory>/<name>.json besides what is built in; no directory is no error. Refused, each
// for itself: a file that is not regular or that others than root and this user may write, a name
// that is built in, and what ParseCatalogEntry refuses. Blocks on the disk.
Catalog LoadCatalog(const std::string& directory);
// The same without reading the files: built-in names and those the directory's files would have.
std::vector<std::string> CatalogNames(const std::string& directory);
// kNotFound (lists the known names) with the field "name"; the error of a refused file of that
// name.
Result<CatalogEntry> FindCatalogEntry(const std::string& directory, const std::string& name);

}  // namespace hutch::rootfs
