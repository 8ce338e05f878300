// template ls, inspect, validate.
#include "base/file.h"
#include "base/text.h"
#include "tools/commands.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;  // the daemon has its own, lower bound

struct TemplateLine {
  std::string name, description, title, image, source, fault;
  bool valid = false;
};

Result<TemplateLine> ReadLine(const Json& json) {
  TemplateLine line;
  oci::ObjectReader reader(json, "template");
  reader.String("name", &line.name)
      .String("title", &line.title)
      .String("description", &line.description)
      .String("image", &line.image)
      .String("source", &line.source)
      .Bool("valid", &line.valid);
  const Json* error = reader.Member("error");
  RETURN_IF_ERROR(reader.Done(Unknown::kIgnore));
  if (error != nullptr)
    RETURN_IF_ERROR(
        oci::ObjectReader(*error, "error").String("message", &line.fault).Done(Unknown::kIgnore));
  return line;
}

}  // namespace

Result<int> RunTemplateList(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get("/v1/templates"));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  oci::ObjectReader reader(reply, "");
  const Json* templates = reader.Member("templates");
  if (templates == nullptr || !templates->is_array())
    return Error{.what = "the daemon's reply has no list of templates"};
  Table table({{"NAME"}, {"IMAGE"}, {"SOURCE"}, {"WHAT"}});
  std::string names;
  for (const Json& item : *templates) {
    ASSIGN_OR_RETURN(const TemplateLine line, ReadLine(item));
    names += line.name + "\n";
    if (line.valid)
      table.Add({line.name, line.image, line.source, line.title});
    else
      table.Add({line.name, "-", line.source, Cell{"wrong: " + line.fault, Colour::kRed}});
  }
  RETURN_IF_ERROR(Print(context.options.ids_only ? names : table.Render(context.colours)));
  return 0;
}

Result<int> RunTemplateInspect(Context& context) {
  ASSIGN_OR_RETURN(const Json found,
                   context.client.Get("/v1/templates/" + EncodeSegment(context.options.id)));
  RETURN_IF_ERROR(PrintJsonText(found));
  return 0;
}

Result<int> RunTemplateValidate(Context& context) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(context.options.path, kMaxTemplateBytes));
  if (!IsUtf8(text))
    return Error{.code = Code::kInvalidArgument, .what = context.options.path + ": is not UTF-8"};
  ASSIGN_OR_RETURN(const Json reply,
                   context.client.Post("/v1/templates/validate", {{"devcontainer", text}}));
  ASSIGN_OR_RETURN(const TemplateLine line, ReadLine(reply));
  if (context.options.json)
    RETURN_IF_ERROR(PrintJsonText(reply));
  else if (line.valid)
    RETURN_IF_ERROR(Print(context.options.path + ": good\n"));
  if (line.valid) return 0;
  if (context.options.json) return kExitFailed;
  std::string hint;
  RETURN_IF_ERROR(
      oci::ObjectReader(reply["error"], "error").String("hint", &hint).Done(Unknown::kIgnore));
  return Error{.code = Code::kInvalidArgument,
               .what = context.options.path + ": " + line.fault,
               .hint = hint};
}

}  // namespace hutch::tools
