// Templates by name: the operator's directory first, then the built-in ones. Nothing is kept: a
// changed file counts at once. Of any thread; what takes the whole directory goes to a worker.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/config.h"
#include "daemon/devcontainer.h"

namespace hutch::daemon {

struct TemplateText {
  std::string_view name, json;
};
const std::vector<TemplateText>& TemplateTexts();  // daemon/templates/*.json, built in

struct FoundTemplate {
  std::string name;
  std::string source;  // a path, or "built-in"
  Result<Template> made;
};

class TemplateLibrary {
 public:
  explicit TemplateLibrary(const Config& config) : config_(config) {}  // borrowed

  // kInvalidArgument for what is no name, kNotFound for one that is not there; field "template".
  // One that is there and wrong is found, with its error.
  Result<FoundTemplate> Find(const std::string& name) const;
  // All of them, by name. kLimit for a directory of more than kMaxTemplates, kKernel for one that
  // cannot be read; one that does not exist has none.
  Result<std::vector<FoundTemplate>> List() const;

 private:
  Result<std::optional<UniqueFd>> OpenAll() const;
  FoundTemplate Load(const std::string& name, int directory_fd) const;

  const Config& config_;
};

}  // namespace hutch::daemon
