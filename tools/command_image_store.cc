// image tag, history, prune, save, load.

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "tools/archive_stream.h"
#include "tools/commands.h"
#include "tools/interrupts.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr size_t kShownStepChars = 60;
constexpr size_t kShownIdChars = 12;

std::string TargetOf(const std::string& reference, const char* more) {
  return "/v1/images/" + EncodeSegment(reference) + more;
}

std::string ShortDigest(const std::string& digest) {
  const size_t colon = digest.find(':');
  return digest.substr(colon == std::string::npos ? 0 : colon + 1, kShownIdChars);
}

std::string NameOf(const Json& image) {
  std::string id;
  std::vector<std::string> references;
  IgnoreError(oci::ObjectReader(image, "image")
                  .String("id", &id)
                  .Strings("references", &references)
                  .Done(Unknown::kIgnore),
              "then it is shown without a name");
  return Printable(ShortDigest(id) + (references.empty() ? "" : " " + Join(references, ", ")));
}

// One line a step of a shell script is what people look for: the rest is in --json.
std::string ShownStep(std::string step) {
  std::replace(step.begin(), step.end(), '\n', ' ');
  step = Printable(step);
  if (step.size() <= kShownStepChars) return step;
  step.resize(kShownStepChars - 3);
  return step + "...";
}

Result<int> PrintPruned(const Context& context, const Json& reply) {
  std::string text;
  const bool dry_run = context.options.dry_run;
  ASSIGN_OR_RETURN(const std::vector<Json> images, ListIn(reply, "images"));
  for (const Json& image : images)
    text += std::string(dry_run ? "would remove " : "removed ") + NameOf(image) + "\n";
  ASSIGN_OR_RETURN(const std::vector<Json> kept, ListIn(reply, "kept"));
  for (const Json& image : kept) text += "kept " + NameOf(image) + ": a sandbox uses it\n";
  ASSIGN_OR_RETURN(const std::vector<Json> layers, ListIn(reply, "layers"));
  ASSIGN_OR_RETURN(const std::vector<Json> downloads, ListIn(reply, "downloads"));
  uint64_t freed = 0;
  std::vector<std::string> failed;
  RETURN_IF_ERROR(oci::ObjectReader(reply, "")
                      .Uint("freed_bytes", &freed)
                      .Strings("failed", &failed)
                      .Done(Unknown::kIgnore));
  text += FormatSize(freed) + (dry_run ? " would be freed: " : " freed: ") +
          std::to_string(layers.size()) + " layers, " + std::to_string(downloads.size()) +
          " parts of downloads\n";
  RETURN_IF_ERROR(Print(text));
  for (const std::string& failure : failed) Note("not removed: " + Printable(failure));
  return failed.empty() ? 0 : kExitFailed;
}

}  // namespace

Result<int> RunImageTag(Context& context) {
  ASSIGN_OR_RETURN(const Json image,
                   context.client.Post(TargetOf(context.options.id, "/tag"),
                                       {{"reference", context.options.reference}}));
  if (context.options.json) RETURN_IF_ERROR(PrintJsonText(image));
  return 0;
}

Result<int> RunImageHistory(Context& context) {
  ASSIGN_OR_RETURN(const Json reply, context.client.Get(TargetOf(context.options.id, "/history")));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  ASSIGN_OR_RETURN(std::vector<Json> steps, ListIn(reply, "history"));
  std::reverse(steps.begin(), steps.end());  // the latest first, as docker shows them
  Table table({{"CREATED"}, {"LAYER"}, {"SIZE", Align::kRight}, {"STEP"}, {"COMMENT"}});
  for (const Json& step : steps) {
    std::string created, created_by, diff_id, comment;
    uint64_t size = 0;
    RETURN_IF_ERROR(oci::ObjectReader(step, "history")
                        .String("created", &created)
                        .String("created_by", &created_by)
                        .String("diff_id", &diff_id)
                        .String("comment", &comment)
                        .Uint("size_bytes", &size)
                        .Done(Unknown::kIgnore));
    table.Add({Printable(created.substr(0, 10)), diff_id.empty() ? "-" : ShortDigest(diff_id),
               FormatSize(size), ShownStep(created_by), ShownStep(comment)});
  }
  RETURN_IF_ERROR(Print(table.Render(context.colours)));
  return 0;
}

Result<int> RunImagePrune(Context& context) {
  ASSIGN_OR_RETURN(const Json reply,
                   context.client.Post("/v1/images/prune", {{"all", context.options.show_all},
                                                            {"dry_run", context.options.dry_run}}));
  if (!context.options.json) return PrintPruned(context, reply);
  RETURN_IF_ERROR(PrintJsonText(reply));
  return 0;
}

namespace {

Request ArchiveRequest(const Options& options) {
  const std::string format = options.format.empty() ? "oci" : options.format;
  return {.target = TargetOf(options.id, "/archive?format=") + EncodeSegment(format),
          .accept = "*/*"};
}

}  // namespace

Result<int> RunImageSave(Context& context) {
  return DownloadArchive(context, ArchiveRequest(context.options),
                         {.path = context.options.output,
                          .option = "-o FILE",
                          .stage = "save",
                          .subject = context.options.id});
}

Result<int> RunImageLoad(Context& context) {
  const std::string& path = context.options.input;
  std::string target = "/v1/images/load";
  if (!context.options.reference.empty())
    target += "?reference=" + EncodeSegment(context.options.reference);
  ASSIGN_OR_RETURN(const Json image,
                   UploadArchive(context, {.method = "POST", .target = target},
                                 {.path = path,
                                  .option = "-i FILE",
                                  .stage = "load",
                                  .subject = path.empty() || path == "-" ? "stdin" : path}));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(image));
    return 0;
  }
  std::string id;
  RETURN_IF_ERROR(oci::ObjectReader(image, "image").String("id", &id).Done(Unknown::kIgnore));
  RETURN_IF_ERROR(Print(id + "\n"));
  return 0;
}

}  // namespace hutch::tools
