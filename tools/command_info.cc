// info: the daemon's own account of itself, as indented lines.
#include "base/text.h"
#include "tools/commands.h"

namespace hutch::tools {
namespace {

using oci::Json;

std::string Scalar(const std::string& name, const Json& value) {
  if (value.is_string()) return Printable(value.get_ref<const std::string&>());
  if (name.ends_with("_bytes") && value.is_number_unsigned())
    return FormatSize(value.get<uint64_t>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return oci::PrintJson(value);
}

bool IsScalar(const Json& value) { return !value.is_structured(); }

void Append(const std::string& name, const Json& value, size_t depth, Colours colours,
            std::string* text) {
  text->append(2 * depth, ' ').append(Paint(Printable(name) + ":", Colour::kBold, colours));
  if (IsScalar(value)) {
    text->append(" ").append(Scalar(name, value)).append("\n");
    return;
  }
  if (value.is_array() && std::all_of(value.begin(), value.end(), IsScalar)) {
    std::vector<std::string> parts;
    for (const Json& item : value) parts.push_back(Scalar(name, item));
    text->append(" ").append(parts.empty() ? "-" : Join(parts, ", ")).append("\n");
    return;
  }
  text->append("\n");
  size_t number = 0;
  for (const auto& [key, member] : value.items())
    Append(value.is_array() ? std::to_string(++number) : key, member, depth + 1, colours, text);
}

}  // namespace

Result<int> RunInfo(Context& context) {
  ASSIGN_OR_RETURN(const Json info, context.client.Get("/v1/info"));
  if (context.options.json || !info.is_object()) {
    RETURN_IF_ERROR(PrintJsonText(info));
    return 0;
  }
  std::string text;
  for (const auto& [name, value] : info.items()) Append(name, value, 0, context.colours, &text);
  RETURN_IF_ERROR(Print(text));
  return 0;
}

}  // namespace hutch::tools
