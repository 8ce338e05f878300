// Searching the lines of files: RE2, so that no pattern takes more than linear time.
#include <fcntl.h>
#include <re2/re2.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>

#include "files/errors.h"
#include "files/glob_pattern.h"
#include "files/limits.h"
#include "files/open.h"
#include "files/operations.h"
#include "files/request.h"
#include "files/walk.h"

namespace hutch::files {
namespace {

struct GrepRequest {
  std::string path;
  std::unique_ptr<RE2> pattern;
  std::optional<GlobPattern> include;
  uint64_t max_matches = 1000, context = 0;
};

Result<GrepRequest> ParseGrep(const oci::Json& request) {
  GrepRequest grep;
  std::string pattern, include;
  bool fixed = false, ignore_case = false;
  auto reader = Members(request);
  ReadPath(reader, "path", &grep.path);
  reader.String("pattern", &pattern, kMaxPatternBytes).String("include", &include);
  reader.Bool("fixed", &fixed).Bool("ignore_case", &ignore_case);
  reader.Uint("max_matches", &grep.max_matches, 1, kMaxMatches);
  reader.Uint("context", &grep.context, 0, kMaxContextLines);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  if (pattern.empty()) return Invalid("an empty pattern", "pattern");
  RE2::Options options;
  options.set_literal(fixed);
  options.set_case_sensitive(!ignore_case);
  options.set_log_errors(false);
  options.set_never_nl(true);  // a match lies within a line
  // (?m), since whole blocks of lines are searched.
  grep.pattern = std::make_unique<RE2>(fixed ? pattern : "(?m)" + pattern, options);
  if (!grep.pattern->ok())
    return Invalid("not a pattern that RE2 takes: " + grep.pattern->error(), "pattern");
  if (include.empty()) return grep;
  ASSIGN_OR_RETURN(grep.include, GlobPattern::Parse(include));
  return grep;
}

std::string Shown(std::string_view line) { return std::string(line.substr(0, kMaxShownLineBytes)); }

class Search {
 public:
  Search(const GrepRequest& grep, Io& io) : grep_(grep), io_(io) {}

  // Searches one file; what cannot be opened is counted, not an error.
  Status File(const std::string& path) {
    auto file = OpenRegular(path);
    if (!file) return ++unreadable_, OkStatus();
    path_ = path;
    line_number_ = 0;
    before_.clear();
    matched_ = false;
    RETURN_IF_ERROR(Blocks(file->fd.get()));
    RETURN_IF_ERROR(FlushPending());
    matching_files_ += matched_ ? 1 : 0;
    return OkStatus();
  }
  bool stopped() const { return stopped_; }
  oci::Json Summary(bool walk_stopped) const {
    return {{"matches", matches_},
            {"matching_files", matching_files_},
            {"binary_files_skipped", binary_},
            {"unreadable", unreadable_},
            {"truncated", stopped_ || walk_stopped}};
  }
  void AddUnreadable(uint64_t count) { unreadable_ += count; }

 private:
  // Reads whole lines into one buffer; a line that does not fit is searched in pieces.
  Status Blocks(int fd) {
    buffer_.resize(2 * kMaxGrepLineBytes);
    size_t held = 0;
    for (bool first = true; !stopped_; first = false) {
      ASSIGN_OR_RETURN(const size_t n, ReadSome(fd, buffer_.data() + held, buffer_.size() - held));
      if (first && std::memchr(buffer_.data(), '\0', std::min<size_t>(n, 8192)) != nullptr)
        return ++binary_, OkStatus();
      searched_bytes_ += n;
      held += n;
      if (searched_bytes_ > kMaxGrepBytes) stopped_ = true;
      const std::string_view text(buffer_.data(), held);
      if (n == 0) return held == 0 ? OkStatus() : Block(text);
      size_t end = text.rfind('\n') + 1;  // 0 when there is none
      if (end == 0 && held < kMaxGrepLineBytes) continue;
      if (end == 0) end = held;
      RETURN_IF_ERROR(Block(text.substr(0, end)));
      held -= end;
      std::memmove(buffer_.data(), buffer_.data() + end, held);
    }
    return OkStatus();
  }

  // Lines are looked at one by one only where there is something to find.
  Status Block(std::string_view block) {
    const bool hit = grep_.pattern->Match(block, 0, block.size(), RE2::UNANCHORED, nullptr, 0);
    if (!hit && pending_.empty() && grep_.context == 0) {
      line_number_ += static_cast<uint64_t>(std::count(block.begin(), block.end(), '\n'));
      return OkStatus();
    }
    while (!block.empty() && !stopped_) {
      const size_t end = block.find('\n');
      RETURN_IF_ERROR(Line(block.substr(0, end), hit));
      block.remove_prefix(end == std::string_view::npos ? block.size() : end + 1);
    }
    return OkStatus();
  }

  Status Line(std::string_view line, bool may_match) {
    ++line_number_;
    re2::StringPiece found;
    const bool hit = may_match && matches_ < grep_.max_matches &&
                     grep_.pattern->Match({line.data(), line.size()}, 0, line.size(),
                                          RE2::UNANCHORED, &found, 1);
    for (Pending& pending : pending_)
      if (pending.wants_after > 0)
        pending.json["after"].push_back(Shown(line)), --pending.wants_after;
    RETURN_IF_ERROR(FlushComplete());
    if (hit) Remember(line, static_cast<size_t>(found.data() - line.data()));
    if (grep_.context > 0) before_.push_back(Shown(line));
    if (before_.size() > grep_.context) before_.pop_front();
    if (matches_ == grep_.max_matches && pending_.empty()) stopped_ = true;
    return hit && grep_.context == 0 ? FlushComplete() : OkStatus();
  }

  void Remember(std::string_view line, size_t column) {
    ++matches_;
    matched_ = true;
    oci::Json json = {{"line", line_number_}, {"column", column + 1}, {"text", Shown(line)}};
    PutPath(json, "path", path_);
    if (line.size() > kMaxShownLineBytes) json["text_truncated"] = true;
    if (grep_.context > 0) {
      json["before"] = std::vector<std::string>(before_.begin(), before_.end());
      json["after"] = oci::Json::array();
    }
    pending_.push_back({std::move(json), grep_.context});
  }

  Status Emit() {
    const oci::Json json = std::move(pending_.front().json);
    pending_.pop_front();
    if (io_.reply.Full((grep_.context * 2 + 1) * kMaxShownLineBytes * 6 + kMaxPathBytes * 6)) {
      stopped_ = true;
      return OkStatus();
    }
    return io_.reply.Line("match", json);
  }
  Status FlushComplete() {
    while (!pending_.empty() && pending_.front().wants_after == 0) RETURN_IF_ERROR(Emit());
    return OkStatus();
  }
  Status FlushPending() {
    while (!pending_.empty()) RETURN_IF_ERROR(Emit());
    if (matches_ == grep_.max_matches) stopped_ = true;
    return OkStatus();
  }

  struct Pending {
    oci::Json json;
    uint64_t wants_after;
  };
  const GrepRequest& grep_;
  Io& io_;
  std::string path_, buffer_;
  uint64_t line_number_ = 0, matches_ = 0, matching_files_ = 0, binary_ = 0, unreadable_ = 0;
  uint64_t searched_bytes_ = 0;
  std::deque<std::string> before_;
  std::deque<Pending> pending_;
  bool matched_ = false, stopped_ = false;
};

}  // namespace

Status Grep(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const GrepRequest grep, ParseGrep(request));
  Search search(grep, io);
  struct stat st {};
  if (::stat(grep.path.c_str(), &st) != 0) return FileError(errno, "stat", grep.path);
  if (!S_ISDIR(st.st_mode)) {
    RETURN_IF_ERROR(RequireRegular(st.st_mode, grep.path));
    RETURN_IF_ERROR(search.File(grep.path));
    return io.reply.Ok(search.Summary(false));
  }
  const auto visit = [&](const WalkedEntry& walked) -> Result<Step> {
    if (walked.is_directory) return Step::kGoOn;
    if (grep.include && !grep.include->Matches(walked.relative)) return Step::kGoOn;
    struct stat found {};
    // Links lead to files that are searched under their own names, or to elsewhere.
    if (::fstatat(walked.dir_fd, walked.name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(found.st_mode))
      return Step::kGoOn;
    RETURN_IF_ERROR(search.File(JoinPath(grep.path, walked.relative)));
    return search.stopped() ? Step::kStop : Step::kGoOn;
  };
  ASSIGN_OR_RETURN(const WalkOutcome outcome, Walk(grep.path, {.max_depth = kMaxTreeDepth}, visit));
  search.AddUnreadable(outcome.unreadable);
  return io.reply.Ok(search.Summary(outcome.stopped));
}

}  // namespace hutch::files
