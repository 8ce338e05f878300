#include "oci/image_history.h"

#include "oci/json.h"

namespace hutch::oci {
namespace {

constexpr JsonLimits kDocumentLimits = {.max_bytes = 8u << 20, .max_depth = 32};
constexpr size_t kMaxSteps = 1024;

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

}  // namespace

Result<std::vector<HistoryEntry>> ParseImageHistory(std::string_view config) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(config, kDocumentLimits));
  ObjectReader reader(json, "");
  const Json* history = reader.Member("history");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  std::vector<HistoryEntry> entries;
  if (history == nullptr) return entries;
  if (!history->is_array()) return Invalid("history must be an array");
  if (history->size() > kMaxSteps)
    return Invalid("history has more than " + std::to_string(kMaxSteps) + " steps");
  for (size_t i = 0; i < history->size(); ++i) {
    HistoryEntry entry;
    RETURN_IF_ERROR(ObjectReader((*history)[i], "history[" + std::to_string(i) + "]")
                        .String("created", &entry.created)
                        .String("created_by", &entry.created_by)
                        .String("author", &entry.author)
                        .String("comment", &entry.comment)
                        .Bool("empty_layer", &entry.empty_layer)
                        .Done(ObjectReader::Unknown::kIgnore));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace hutch::oci
