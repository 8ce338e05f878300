#include "tools/bench/copies.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "tools/bench/programs.h"
#include "tools/bench/statistics.h"

namespace hutch::tools {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kSmallFileBytes = 1024;
constexpr size_t kFilesPerDirectory = 100;

const CaseRow kRows[] = {
    {"copy-file-in", "a large file into a running sandbox", CaseKind::kCopy, {}},
    {"copy-file-out", "the same file out of it", CaseKind::kCopy, {}},
    {"copy-tree-in", "a directory of small files into a running sandbox", CaseKind::kCopy, {}},
    {"copy-tree-out", "the same directory out of it", CaseKind::kCopy, {}},
};

// Bytes without a pattern (xorshift64), so that nothing is a hole and nothing compresses.
class Noise {
 public:
  std::string Take(size_t bytes) {
    std::string block(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) {
      if (i % sizeof state_ == 0) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
      }
      block[i] = static_cast<char>(state_ >> (i % sizeof state_ * 8));
    }
    return block;
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

Status WriteNoise(const std::string& path, uint64_t bytes, Noise* noise) {
  ASSIGN_OR_RETURN(const UniqueFd file, Open(path, O_WRONLY | O_CREAT | O_EXCL, 0644));
  for (uint64_t left = bytes; left > 0;) {
    const size_t step = static_cast<size_t>(std::min<uint64_t>(left, kBlockBytes));
    RETURN_IF_ERROR(WriteAll(file.get(), noise->Take(step)));
    left -= step;
  }
  return OkStatus();
}

Status MakeTree(const std::string& path, size_t files, Noise* noise) {
  for (size_t i = 0; i < files; ++i) {
    const std::string directory = path + "/d" + std::to_string(i / kFilesPerDirectory);
    if (i % kFilesPerDirectory == 0) RETURN_IF_ERROR(MakeDirectories(directory, 0755));
    RETURN_IF_ERROR(WriteNoise(directory + "/f" + std::to_string(i), kSmallFileBytes, noise));
  }
  return OkStatus();
}

// One digest over the names and contents of a file or directory.
Result<std::string> DigestOfAll(const std::string& path) {
  constexpr const char* kScript =
      "if [ -d \"$1\" ]; then cd \"$1\" && find . -type f | LC_ALL=C sort | xargs sha256sum | "
      "sha256sum; else sha256sum <\"$1\"; fi";
  ASSIGN_OR_RETURN(const Finished done, RunToEnd({"sh", "-c", kScript, "sh", path}));
  if (done.exit_code == 0) return Split(done.output, ' ').front();
  return Error{.code = Code::kUnavailable, .what = "cannot read " + path + ": " + done.output};
}

struct Subject {
  std::string path;    // on the host
  std::string inside;  // in the sandbox
  uint64_t bytes;
  size_t first_row;  // in; the next is out
  std::string digest;
};

class Copies {
 public:
  Copies(const Setup& setup, const Plan& plan, std::vector<Entrant>* entrants)
      : setup_(setup), plan_(plan), entrants_(*entrants), results_(std::size(kRows)) {
    for (size_t i = 0; i < results_.size(); ++i) {
      results_[i].row = &kRows[i];
      for (const Entrant& entrant : entrants_)
        results_[i].entries.push_back({.contestant = entrant.row->name, .reason = entrant.reason});
    }
  }

  Result<std::vector<CaseResult>> Run() {
    ASSIGN_OR_RETURN(const std::vector<Subject> subjects, MakeSubjects());
    for (size_t round = 0; round < plan_.copy_runs; ++round)
      for (size_t i = 0; i < entrants_.size(); ++i) {
        const size_t turn = (round + i) % entrants_.size();
        for (const Subject& subject : subjects) {
          if (!results_[subject.first_row].entries[turn].reason.empty()) continue;
          const Status copied = CopyThereAndBack(turn, subject);
          if (!copied) Fail(turn, subject.first_row, copied.error().what);
        }
      }
    for (const Subject& subject : subjects)
      for (const size_t row : {subject.first_row, subject.first_row + 1})
        for (Entry& entry : results_[row].entries)
          if (!entry.samples.empty())
            entry.per_second =
                static_cast<double>(subject.bytes) / 1000 / Summarize(entry.samples).p50;
    return std::move(results_);
  }

 private:
  Result<std::vector<Subject>> MakeSubjects() {
    Noise noise;
    const std::string directory = setup_.work + "/copies";
    RETURN_IF_ERROR(MakeDirectories(directory, 0755));
    std::vector<Subject> subjects = {
        {directory + "/file", "/tmp/copy-of-file", plan_.copy_bytes, 0, {}},
        {directory + "/tree", "/tmp/copy-of-tree", plan_.copy_files * kSmallFileBytes, 2, {}}};
    RETURN_IF_ERROR(WriteNoise(subjects[0].path, plan_.copy_bytes, &noise));
    RETURN_IF_ERROR(MakeTree(subjects[1].path, plan_.copy_files, &noise));
    for (Subject& subject : subjects) {
      ASSIGN_OR_RETURN(subject.digest, DigestOfAll(subject.path));
    }
    return subjects;
  }

  Status CopyThereAndBack(size_t turn, const Subject& subject) {
    Contestant& contestant = *entrants_[turn].contestant;
    const std::string back = setup_.work + "/back";
    ::sync();  // what the last one wrote must not be written out in this one's time
    ASSIGN_OR_RETURN(const double in_ms, contestant.CopyIn(subject.path, subject.inside));
    ::sync();
    ASSIGN_OR_RETURN(const double out_ms, contestant.CopyOut(subject.inside, back));
    const auto digest = DigestOfAll(back);
    IgnoreError(RemoveTree(back), "the work directory goes in the end");
    contestant.RemoveCopy(subject.inside);
    RETURN_IF_ERROR(digest);
    if (*digest != subject.digest)
      return Error{.code = Code::kCorrupt, .what = "what came back is not what went in"};
    results_[subject.first_row].entries[turn].samples.push_back(in_ms);
    results_[subject.first_row + 1].entries[turn].samples.push_back(out_ms);
    return OkStatus();
  }

  void Fail(size_t turn, size_t first_row, const std::string& reason) {
    for (const size_t row : {first_row, first_row + 1}) {
      results_[row].entries[turn].reason = reason;
      results_[row].entries[turn].samples.clear();
    }
  }

  const Setup& setup_;
  const Plan& plan_;
  std::vector<Entrant>& entrants_;
  std::vector<CaseResult> results_;
};

}  // namespace

Result<std::vector<CaseResult>> MeasureCopies(const Setup& setup, const Plan& plan,
                                              std::vector<Entrant>* entrants) {
  return Copies(setup, plan, entrants).Run();
}

uint64_t MemoryOf(int pid, const char* field) {
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/status", size_t{1} << 16);
  for (const std::string& line : Split(text ? *text : "", '\n')) {
    if (!line.starts_with(std::string(field) + ":")) continue;
    const std::string_view value = Trim(std::string_view(line).substr(line.find(':') + 1));
    const auto kib = ParseUint(value.substr(0, value.find(' ')));
    return kib ? *kib : 0;
  }
  return 0;
}

Status ResetPeak(int pid) {
  return WriteExisting("/proc/" + std::to_string(pid) + "/clear_refs", "5");
}

}  // namespace hutch::tools
