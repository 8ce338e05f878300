#include "daemon/process_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr int64_t kSameRunUs = 20'000;  // bytes of one stream this close share a mark
constexpr char kData[] = ".data";
constexpr char kIndex[] = ".index";
constexpr size_t kKeptSegments = 2;

int64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

template <class Record>
Status WriteRecord(int fd, const Record& record, off_t at) {
  if (::pwrite(fd, &record, sizeof record, at) == static_cast<ssize_t>(sizeof record))
    return OkStatus();
  return SysError(errno, "write to the index of a log");
}

Result<uint64_t> FileSize(int fd) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size < 0) return SysError(errno, "size of a log");
  return static_cast<uint64_t>(size);
}

size_t StreamIndex(StreamId stream) { return stream == StreamId::kStdout ? 0 : 1; }

}  // namespace

const char* StreamName(StreamId stream) {
  return stream == StreamId::kStdout ? "stdout" : "stderr";
}

struct ProcessLog::Index {
  UniqueFd fd;
  Header header;
  uint64_t count;  // whole marks

  Result<Mark> At(uint64_t number) const {
    Mark mark;
    const auto at = static_cast<off_t>(sizeof(Header) + number * sizeof mark);
    if (::pread(fd.get(), &mark, sizeof mark, at) == static_cast<ssize_t>(sizeof mark)) return mark;
    return Error{.code = Code::kCorrupt, .what = "the index of a log is cut off"};
  }

  // The number of the first mark for which `before` is false.
  template <class Before>
  Result<uint64_t> Partition(Before before) const {
    uint64_t low = 0, high = count;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      ASSIGN_OR_RETURN(const Mark mark, At(middle));
      if (before(mark))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

ProcessLog::ProcessLog(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)),
      segment_bytes_(std::max<uint64_t>(limit_bytes, kMinLogBytes) / kKeptSegments) {}

std::string ProcessLog::Path(uint64_t base, const char* suffix) const {
  return directory_ + "/" + std::to_string(base) + suffix;
}

Result<std::unique_ptr<ProcessLog>> ProcessLog::Open(const std::string& directory,
                                                     uint64_t limit_bytes) {
  RETURN_IF_ERROR(MakeDirectories(directory, 0700));
  std::unique_ptr<ProcessLog> log(new ProcessLog(directory, limit_bytes));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  RETURN_IF_ERROR(log->TakeUp(names));
  return log;
}

// A segment begins to exist with its data file; its index comes after it.
Status ProcessLog::TakeUp(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!name.ends_with(kIndex)) continue;
    if (const auto base = ParseUint(name.substr(0, name.size() - (sizeof kIndex - 1))))
      bases_.push_back(*base);
  }
  std::sort(bases_.begin(), bases_.end());
  if (bases_.empty()) return OkStatus();
  const uint64_t base = bases_.back();
  ASSIGN_OR_RETURN(data_, hutch::Open(Path(base, kData), O_RDWR));
  ASSIGN_OR_RETURN(index_, hutch::Open(Path(base, kIndex), O_RDWR));
  ASSIGN_OR_RETURN(const uint64_t data_bytes, FileSize(data_.get()));
  end_ = base + data_bytes;
  ASSIGN_OR_RETURN(const Index index, OpenIndex(base));
  written_[0] = index.header.stdout_before;
  written_[1] = index.header.stderr_before;
  lost_ = index.header.lost_before;
  mark_count_ = index.count;
  for (uint64_t i = 0; i < index.count; ++i) {
    ASSIGN_OR_RETURN(last_, index.At(i));
    uint64_t run_end = end_;
    if (i + 1 < index.count) {
      ASSIGN_OR_RETURN(const Mark next, index.At(i + 1));
      run_end = next.offset;
    }
    written_[last_.stream == static_cast<uint64_t>(StreamId::kStdout) ? 0 : 1] +=
        run_end - last_.offset;
  }
  return OkStatus();
}

Status ProcessLog::StartSegment() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC;
  ASSIGN_OR_RETURN(UniqueFd data, hutch::Open(Path(end_, kData), kFlags, 0600));
  FaultPoint("log segment data made");
  ASSIGN_OR_RETURN(UniqueFd index, hutch::Open(Path(end_, kIndex), kFlags, 0600));
  const Header header{end_, written_[0], written_[1], lost_};
  RETURN_IF_ERROR(WriteRecord(index.get(), header, 0));
  FaultPoint("log segment begun");
  data_ = std::move(data);
  index_ = std::move(index);
  mark_count_ = 0;
  if (bases_.empty() || bases_.back() != end_) bases_.push_back(end_);
  while (bases_.size() > kKeptSegments) {
    for (const char* suffix : {kIndex, kData})
      if (::unlink(Path(bases_.front(), suffix).c_str()) != 0 && errno != ENOENT)
        return SysError(errno, "remove an old segment of a log");
    FaultPoint("log segment removed");
    bases_.erase(bases_.begin());
  }
  return OkStatus();
}

Status ProcessLog::MarkRun(StreamId stream) {
  const int64_t now = NowUs();
  const auto id = static_cast<uint64_t>(stream);
  const bool empty = mark_count_ > 0 && last_.offset == end_;
  if (mark_count_ > 0 && last_.stream == id && !empty && now - last_.time_us < kSameRunUs)
    return OkStatus();
  const Mark mark{end_, now, id};
  const uint64_t number = empty ? mark_count_ - 1 : mark_count_;
  RETURN_IF_ERROR(
      WriteRecord(index_.get(), mark, static_cast<off_t>(sizeof(Header) + number * sizeof mark)));
  last_ = mark;
  mark_count_ = number + 1;
  return OkStatus();
}

size_t ProcessLog::Discard(int pipe_fd, size_t max_bytes, bool* at_end) {
  char buffer[16 * 1024];
  size_t total = 0;
  while (total < max_bytes) {
    const ssize_t count = ::read(pipe_fd, buffer, std::min(sizeof buffer, max_bytes - total));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || (count < 0 && errno != EAGAIN)) *at_end = true;
    if (count <= 0) break;
    total += static_cast<size_t>(count);
  }
  lost_ += total;
  return total;
}

size_t ProcessLog::Pump(int pipe_fd, StreamId stream, size_t max_bytes, bool* at_end) {
  *at_end = false;
  size_t total = 0;
  while (total < max_bytes) {
    const uint64_t used = bases_.empty() ? 0 : end_ - bases_.back() + mark_count_ * sizeof(Mark);
    Status ready = !data_.valid() || used >= segment_bytes_ ? StartSegment() : OkStatus();
    if (ready) ready = MarkRun(stream);
    if (!ready) return total + Discard(pipe_fd, max_bytes - total, at_end);
    loff_t at = static_cast<loff_t>(end_ - bases_.back());
    const size_t room = static_cast<size_t>(segment_bytes_ - std::min(used, segment_bytes_));
    const size_t wanted = std::min(std::max<size_t>(room, 4096), max_bytes - total);
    const ssize_t count =
        ::splice(pipe_fd, nullptr, data_.get(), &at, wanted, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return total;
    if (count < 0) return total + Discard(pipe_fd, max_bytes - total, at_end);
    if (count == 0) {
      *at_end = true;
      return total;
    }
    FaultPoint("log bytes moved");
    end_ += static_cast<uint64_t>(count);
    written_[StreamIndex(stream)] += static_cast<uint64_t>(count);
    total += static_cast<size_t>(count);
  }
  return total;
}

uint64_t ProcessLog::begin() const { return bases_.empty() ? 0 : bases_.front(); }

uint64_t ProcessLog::written(StreamId stream) const { return written_[StreamIndex(stream)]; }

uint64_t ProcessLog::SegmentEnd(size_t at) const {
  return at + 1 < bases_.size() ? bases_[at + 1] : end_;
}

void ProcessLog::Seal() {
  data_.reset();
  index_.reset();
}

Result<ProcessLog::Index> ProcessLog::OpenIndex(uint64_t base) const {
  Index index;
  ASSIGN_OR_RETURN(index.fd, hutch::Open(Path(base, kIndex), O_RDONLY));
  ASSIGN_OR_RETURN(const uint64_t size, FileSize(index.fd.get()));
  if (size < sizeof(Header) || ::pread(index.fd.get(), &index.header, sizeof(Header), 0) !=
                                   static_cast<ssize_t>(sizeof(Header)))
    index.header = {base, 0, 0, 0};  // killed between two system calls: nothing was logged yet
  index.count = size < sizeof(Header) ? 0 : (size - sizeof(Header)) / sizeof(Mark);
  return index;
}

Status ProcessLog::ReadSegment(uint64_t base, uint64_t from, uint64_t to,
                               std::vector<LogRun>* runs) const {
  ASSIGN_OR_RETURN(const Index index, OpenIndex(base));
  ASSIGN_OR_RETURN(const UniqueFd data, hutch::Open(Path(base, kData), O_RDONLY));
  ASSIGN_OR_RETURN(uint64_t number,
                   index.Partition([&](const Mark& mark) { return mark.offset <= from; }));
  if (number > 0) --number;  // the run that `from` lies in
  for (; from < to && number < index.count; ++number) {
    ASSIGN_OR_RETURN(const Mark mark, index.At(number));
    uint64_t run_end = to;
    if (number + 1 < index.count) {
      ASSIGN_OR_RETURN(const Mark next, index.At(number + 1));
      run_end = std::min(to, next.offset);
    }
    if (run_end <= from) continue;
    LogRun run{static_cast<StreamId>(mark.stream), from, mark.time_us,
               std::string(run_end - from, '\0')};
    const ssize_t count =
        ::pread(data.get(), run.bytes.data(), run.bytes.size(), static_cast<off_t>(from - base));
    if (count != static_cast<ssize_t>(run.bytes.size()))
      return Error{.code = Code::kCorrupt, .what = "a log is shorter than its index says"};
    from = run_end;
    runs->push_back(std::move(run));
  }
  return OkStatus();
}

Result<std::vector<LogRun>> ProcessLog::Read(uint64_t cursor, size_t max_bytes) const {
  std::vector<LogRun> runs;
  cursor = std::clamp(cursor, begin(), end_);
  const uint64_t to = std::min<uint64_t>(end_, cursor + max_bytes);
  for (size_t i = 0; i < bases_.size() && cursor < to; ++i) {
    const uint64_t segment_to = std::min(to, SegmentEnd(i));
    if (segment_to <= cursor) continue;
    RETURN_IF_ERROR(ReadSegment(bases_[i], cursor, segment_to, &runs));
    cursor = segment_to;
  }
  return runs;
}

uint64_t ProcessLog::FindTime(int64_t time_us) const {
  for (const uint64_t base : bases_) {
    const auto index = OpenIndex(base);
    if (!index) continue;
    const auto number = index->Partition([&](const Mark& mark) { return mark.time_us < time_us; });
    if (!number || *number >= index->count) continue;
    if (const auto mark = index->At(*number)) return mark->offset;
  }
  return end_;
}

}  // namespace hutch::daemon
