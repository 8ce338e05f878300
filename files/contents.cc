// Operations on the contents of small files: edit, and several files at once.
#include <fcntl.h>

#include <optional>

#include "base/base64.h"
#include "base/text.h"
#include "files/entry.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/new_file.h"
#include "files/open.h"
#include "files/operations.h"
#include "files/request.h"

namespace hutch::files {
namespace {

using Unknown = oci::ObjectReader::Unknown;

Result<std::string> ContentsOf(const OpenedFile& file, const std::string& path,
                               uint64_t max_bytes) {
  const Error too_large{.code = Code::kTooLarge,
                        .what = path + " has more than " + std::to_string(max_bytes) + " bytes"};
  if (static_cast<uint64_t>(file.st.st_size) > max_bytes) return too_large;
  auto text = ReadToEnd(file.fd.get(), max_bytes);
  if (!text && text.error().code == Code::kTooLarge) return too_large;
  return text;
}

// --- edit

struct EditRequest {
  std::string path, old_text, new_text;
  std::optional<uint64_t> count;  // how many there must be; none: any number
  std::string if_match;
};

Result<EditRequest> ParseEdit(const oci::Json& request) {
  EditRequest edit;
  uint64_t count = 1;
  bool all = false;
  auto reader = Members(request);
  ReadPath(reader, "path", &edit.path);
  ReadContent(reader, "old", &edit.old_text);
  ReadContent(reader, "new", &edit.new_text);
  reader.Uint("count", &count, 1).Bool("all", &all).String("if_match", &edit.if_match);
  if (all && reader.Member("count") != nullptr) reader.Fail("count", "\"all\" is given, too");
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  if (edit.old_text.empty()) return Invalid("\"old\" is empty", "old");
  if (!all) edit.count = count;
  return edit;
}

// Replaces every occurrence, left to right without overlaps. kTooLarge before memory is taken.
Result<std::string> Replace(const std::string& text, const EditRequest& edit, uint64_t* found) {
  *found = 0;
  std::string out;
  size_t at = 0;
  for (size_t hit; (hit = text.find(edit.old_text, at)) != std::string::npos; ++*found) {
    out.append(text, at, hit - at).append(edit.new_text);
    at = hit + edit.old_text.size();
    if (out.size() > kMaxEditBytes)
      return Error{.code = Code::kTooLarge, .what = "the edited file would be too large"};
  }
  out.append(text, at);
  if (out.size() > kMaxEditBytes)
    return Error{.code = Code::kTooLarge, .what = "the edited file would be too large"};
  return out;
}

Status CheckCount(const EditRequest& edit, uint64_t found) {
  if (found == 0)
    return Error{.code = Code::kAmbiguous, .what = "the text is not in " + edit.path + ": 0 found"};
  if (!edit.count || found == *edit.count) return OkStatus();
  return Error{.code = Code::kAmbiguous,
               .what = "the text is in " + edit.path + " " + std::to_string(found) +
                       " times, not " + std::to_string(*edit.count)};
}

// --- several files

Result<oci::Json> ReadOne(const std::string& path, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const OpenedFile file, OpenRegular(path));
  ASSIGN_OR_RETURN(const std::string text, ContentsOf(file, path, max_bytes));
  oci::Json entry = EntryJson(file.st);
  if (IsUtf8(text))
    entry["content"] = text;
  else
    entry["content_base64"] = Base64Encode(text);
  return entry;
}

struct BatchFile {
  std::string path, content;
  Conditions conditions;
  Parents parents = Parents::kMustExist;
};

Result<oci::Json> WriteOne(const BatchFile& file) {
  ASSIGN_OR_RETURN(Place place, FindPlace(file.path, file.parents));
  ASSIGN_OR_RETURN(NewFile fresh, NewFile::Start(std::move(place), file.conditions));
  auto status = WriteFully(fresh.fd(), file.content);
  if (!status) return FileError(status.error().sys, "write", file.path);
  ASSIGN_OR_RETURN(oci::Json entry, fresh.Publish());
  entry["created"] = !fresh.replaces();
  return entry;
}

Status ReplyOne(Io& io, const std::string& path, Result<oci::Json> result, uint64_t* failed) {
  oci::Json line = result ? std::move(*result) : oci::Json{{"error", ErrorJson(result.error())}};
  if (!result) ++*failed;
  PutPath(line, "path", path);
  return io.reply.Line("result", line);
}

// The array `name` of the request, bounded.
Result<const oci::Json*> BatchOf(oci::ObjectReader& reader, const char* name) {
  const oci::Json* array = reader.Member(name);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  if (array == nullptr || !array->is_array() || array->empty())
    return Invalid(std::string("\"") + name + "\" must be an array that is not empty", name);
  if (array->size() > kMaxBatchFiles)
    return Invalid("more than " + std::to_string(kMaxBatchFiles) + " files at once", name);
  return array;
}

Result<BatchFile> ParseBatchFile(const oci::Json& item, size_t index) {
  BatchFile file;
  bool parents = false, create = false;
  oci::ObjectReader reader(item, "files[" + std::to_string(index) + "]");
  ReadPath(reader, "path", &file.path);
  ReadContent(reader, "content", &file.content);
  ReadMode(reader, "mode", &file.conditions.mode);
  reader.Bool("parents", &parents).Bool("create_only", &create);
  reader.String("if_match", &file.conditions.if_match);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  if (parents) file.parents = Parents::kMake;
  if (create) file.conditions.if_exists = IfExists::kRefuse;
  return file;
}

}  // namespace

Status Edit(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const EditRequest edit, ParseEdit(request));
  ASSIGN_OR_RETURN(const OpenedFile file, OpenRegular(edit.path));
  const std::string tag = EntityTag(file.st);
  if (!edit.if_match.empty() && edit.if_match != "*" && edit.if_match != tag)
    return Error{.code = Code::kPreconditionFailed,
                 .what = edit.path + " is another one than the entity tag says"};
  ASSIGN_OR_RETURN(const std::string text, ContentsOf(file, edit.path, kMaxEditBytes));
  uint64_t found = 0;
  ASSIGN_OR_RETURN(const std::string edited, Replace(text, edit, &found));
  RETURN_IF_ERROR(CheckCount(edit, found));
  ASSIGN_OR_RETURN(Place place, FindPlace(edit.path, Parents::kMustExist));
  // Whatever was written between reading and renaming would be lost otherwise.
  ASSIGN_OR_RETURN(NewFile fresh, NewFile::Start(std::move(place), {.if_match = tag}));
  auto status = WriteFully(fresh.fd(), edited);
  if (!status) return FileError(status.error().sys, "write", edit.path);
  ASSIGN_OR_RETURN(oci::Json entry, fresh.Publish());
  entry["replacements"] = found;
  return io.reply.Ok(entry);
}

Status BatchRead(const oci::Json& request, Io& io) {
  uint64_t max_bytes = kMaxBatchBytes;
  auto reader = Members(request);
  reader.Uint("max_bytes", &max_bytes, 0, kMaxBatchBytes);
  ASSIGN_OR_RETURN(const oci::Json* items, BatchOf(reader, "files"));
  std::vector<std::string> paths(items->size());
  for (size_t i = 0; i < items->size(); ++i) {
    oci::ObjectReader item((*items)[i], "files[" + std::to_string(i) + "]");
    ReadPath(item, "path", &paths[i]);
    RETURN_IF_ERROR(item.Done(Unknown::kRefuse));
  }
  uint64_t left = kMaxBatchBytes, failed = 0;
  for (const std::string& path : paths) {
    auto result = ReadOne(path, std::min(left, max_bytes));
    if (result) left -= std::min(left, (*result)["size"].get<uint64_t>());
    // JSON writes some bytes as six, so that eight megabytes of them do not fit.
    if (result && io.reply.Full(oci::PrintJson(*result).size()))
      result = Error{.code = Code::kTooLarge, .what = path + " no longer fits the answer"};
    RETURN_IF_ERROR(ReplyOne(io, path, std::move(result), &failed));
  }
  return io.reply.Ok({{"files", paths.size()}, {"failed", failed}});
}

Status BatchWrite(const oci::Json& request, Io& io) {
  auto reader = Members(request);
  ASSIGN_OR_RETURN(const oci::Json* items, BatchOf(reader, "files"));
  std::vector<BatchFile> batch;
  uint64_t total = 0, failed = 0;
  for (size_t i = 0; i < items->size(); ++i) {
    ASSIGN_OR_RETURN(BatchFile file, ParseBatchFile((*items)[i], i));
    total += file.content.size();
    batch.push_back(std::move(file));
  }
  if (total > kMaxBatchBytes)
    return Error{.code = Code::kTooLarge,
                 .what = "contents of more than " + std::to_string(kMaxBatchBytes) + " bytes"};
  for (const BatchFile& file : batch)
    RETURN_IF_ERROR(ReplyOne(io, file.path, WriteOne(file), &failed));
  return io.reply.Ok({{"files", batch.size()}, {"failed", failed}});
}

}  // namespace hutch::files
