// Listing directories, and finding names by a pattern.
#include <fcntl.h>

#include <optional>

#include "base/base64.h"
#include "files/entry.h"
#include "files/errors.h"
#include "files/glob_pattern.h"
#include "files/limits.h"
#include "files/operations.h"
#include "files/request.h"
#include "files/walk.h"

namespace hutch::files {
namespace {

struct ListRequest {
  std::string path;
  std::optional<GlobPattern> glob;
  uint64_t depth = 1, limit = 1000;
  std::string after;
};

Result<ListRequest> ParseList(const oci::Json& request, const char* glob_name, uint64_t depth) {
  ListRequest list;
  std::string glob, cursor;
  list.depth = depth;
  auto reader = Members(request);
  ReadPath(reader, "path", &list.path);
  reader.Uint("depth", &list.depth, 1, kMaxTreeDepth).Uint("limit", &list.limit, 1, kMaxListLimit);
  reader.String(glob_name, &glob).String("cursor", &cursor, 2 * kMaxPathBytes);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  if (!Base64Decode(cursor, &list.after) || list.after.find('\0') != std::string::npos)
    return Invalid("a cursor that no answer gave", "cursor");
  if (glob.empty()) return list;
  ASSIGN_OR_RETURN(list.glob, GlobPattern::Parse(glob));
  return list;
}

// Answers with the entries that `wanted` takes, as many as asked for and as fit.
Status Answer(const ListRequest& list, Io& io,
              const std::function<bool(const std::string& relative)>& wanted) {
  uint64_t count = 0;
  const auto visit = [&](const WalkedEntry& walked) -> Result<Step> {
    if (!wanted(walked.relative)) return Step::kGoOn;
    // What is asked for beyond the limit stops the walk, so that "next" means there is more.
    if (count == list.limit || io.reply.Full(2 * kMaxPathBytes * 6)) return Step::kStop;
    auto entry = EntryAt(walked.dir_fd, walked.name, JoinPath(list.path, walked.relative));
    if (!entry) return Step::kGoOn;  // removed since its directory was read
    ++count;
    RETURN_IF_ERROR(io.reply.Line("entry", *entry));
    return Step::kGoOn;
  };
  ASSIGN_OR_RETURN(const WalkOutcome outcome,
                   Walk(list.path, {.max_depth = list.depth, .after = list.after}, visit));
  oci::Json end = {{"count", count},
                   {"truncated", outcome.stopped},
                   {"unreadable_directories", outcome.unreadable}};
  if (outcome.stopped) end["next"] = Base64Encode(outcome.last);
  return io.reply.Ok(end);
}

}  // namespace

Status List(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const ListRequest list, ParseList(request, "glob", 1));
  return Answer(list, io, [&](const std::string& relative) {
    return !list.glob || list.glob->Matches(relative);
  });
}

Status Glob(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const ListRequest list, ParseList(request, "pattern", kMaxTreeDepth));
  if (!list.glob) return Invalid("\"pattern\" is missing", "pattern");
  return Answer(list, io,
                [&](const std::string& relative) { return list.glob->MatchesPath(relative); });
}

}  // namespace hutch::files
