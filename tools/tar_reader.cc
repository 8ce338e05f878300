#include "tools/tar_reader.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace hutch::tools {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kMaxMetaBytes = size_t{1} << 20;
constexpr size_t kSliceBytes = size_t{16} << 10;
constexpr size_t kMaxRuns = 65536;
constexpr uint64_t kMaxSize = uint64_t{1} << 50;

Error NoTar(const char* what) {
  return Error{.code = Code::kCorrupt, .what = std::string("the archive has ") + what};
}

std::string_view Field(std::string_view block, size_t offset, size_t size) {
  const std::string_view field = block.substr(offset, size);
  return field.substr(0, field.find('\0'));
}

// Octal, or GNU's binary for what does not fit.
Result<uint64_t> Number(std::string_view field) {
  uint64_t value = 0;
  if ((field[0] & 0x80) != 0) {
    for (size_t i = 1; i < field.size(); ++i) {
      if (value > kMaxSize) return NoTar("a number that is too large");
      value = value << 8 | static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  for (const char c : field) {
    if (c == ' ' || c == '\0') continue;
    if (c < '0' || c > '7' || value > kMaxSize) return NoTar("a field that is no number");
    value = value * 8 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

bool ChecksumFits(std::string_view block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  const auto told = Number(block.substr(148, 8));
  return told && *told == sum;
}

uint64_t PaddingOf(uint64_t size) { return (kBlock - size % kBlock) % kBlock; }

TarEntry::Kind KindOf(char type) {
  constexpr struct {
    char type;
    TarEntry::Kind kind;
  } kKinds[] = {{'0', TarEntry::Kind::kFile},    {'\0', TarEntry::Kind::kFile},
                {'7', TarEntry::Kind::kFile},    {'1', TarEntry::Kind::kHardLink},
                {'2', TarEntry::Kind::kSymlink}, {'5', TarEntry::Kind::kDirectory}};
  for (const auto& row : kKinds)
    if (row.type == type) return row.kind;
  return TarEntry::Kind::kOther;
}

// "18 path=some/name\n" and so on.
Result<std::map<std::string, std::string>> ParsePax(std::string_view text) {
  std::map<std::string, std::string> records;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return NoTar("a damaged pax header");
    const auto length = ParseUint(text.substr(0, space), text.size());
    if (!length || *length < space + 2) return NoTar("a damaged pax header");
    const std::string_view record = text.substr(space + 1, *length - space - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return NoTar("a damaged pax header");
    records[std::string(record.substr(0, equals))] = record.substr(equals + 1);
    text.remove_prefix(*length);
  }
  return records;
}

}  // namespace

std::string TarReader::Take(size_t size) {
  std::string taken = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return taken;
}

// Whether the state can do something with what is there.
bool TarReader::Ready() const {
  switch (state_) {
    case State::kHeader:
      return buffer_.size() >= kBlock;
    case State::kSparseMap:
      return buffer_.size() >= map_bytes_;
    case State::kMeta:
      return buffer_.size() >= stored_ + padding_;
    case State::kData:
      return stored_ == 0 || !buffer_.empty();
    case State::kPadding:
      return buffer_.size() >= padding_;
    case State::kFinished:
      break;
  }
  return false;
}

Status TarReader::Feed(std::string_view bytes) {
  // In slices: what is taken is cut off at the front, over and over.
  while (!bytes.empty() && !finished()) {  // behind the end: zeros that fill the writer's record
    buffer_.append(bytes.substr(0, kSliceBytes));
    bytes.remove_prefix(std::min(bytes.size(), kSliceBytes));
    while (Ready()) RETURN_IF_ERROR(Step());
  }
  return OkStatus();
}

Status TarReader::Step() {
  switch (state_) {
    case State::kHeader:
      return TakeHeader();
    case State::kMeta:
      return TakeMeta();
    case State::kSparseMap:
      return TakeSparseMap();
    case State::kData:
      return TakeData();
    case State::kPadding:
      buffer_.erase(0, padding_);
      state_ = State::kHeader;
      break;
    case State::kFinished:
      break;
  }
  return OkStatus();
}

Status TarReader::TakeHeader() {
  const std::string block = Take(kBlock);
  if (block.find_first_not_of('\0') == std::string::npos) {
    state_ = State::kFinished;
    return OkStatus();
  }
  if (!ChecksumFits(block)) return NoTar("a header with a wrong checksum");
  ASSIGN_OR_RETURN(stored_, Number(std::string_view(block).substr(124, 12)));
  if (stored_ > kMaxSize) return NoTar("a member that is too large");
  const char type = block[156];
  padding_ = PaddingOf(stored_);
  if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
    if (stored_ > kMaxMetaBytes)
      return Error{.code = Code::kTooLarge, .what = "the archive has a header of more than 1 MiB"};
    meta_type_ = type;
    state_ = State::kMeta;
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const uint64_t mode, Number(std::string_view(block).substr(100, 8)));
  entry_ = {};
  entry_.mode = static_cast<uint32_t>(mode & 07777);
  entry_.name = Field(block, 0, 100);
  entry_.target = Field(block, 157, 100);
  const std::string_view prefix = Field(block, 345, 155);
  const bool ustar = std::memcmp(block.data() + 257, "ustar\0", 6) == 0;
  if (ustar && !prefix.empty()) entry_.name = std::string(prefix) + "/" + entry_.name;
  return BeginEntry(type, stored_);
}

Status TarReader::TakeMeta() {
  std::string text = Take(stored_);
  buffer_.erase(0, padding_);
  state_ = State::kHeader;
  if (meta_type_ == 'x') {
    ASSIGN_OR_RETURN(pax_, ParsePax(text));
    return OkStatus();
  }
  text.erase(std::min(text.size(), text.find('\0')));
  if (meta_type_ == 'L') long_name_ = std::move(text);
  if (meta_type_ == 'K') long_target_ = std::move(text);
  return OkStatus();
}

void TarReader::ApplyPax() {
  const struct {
    const char* name;
    std::string* field;
  } rows[] = {
      {"path", &entry_.name}, {"GNU.sparse.name", &entry_.name}, {"linkpath", &entry_.target}};
  if (!long_name_.empty()) entry_.name = std::move(long_name_);
  if (!long_target_.empty()) entry_.target = std::move(long_target_);
  for (const auto& row : rows)
    if (const auto found = pax_.find(row.name); found != pax_.end()) *row.field = found->second;
  long_name_.clear();
  long_target_.clear();
}

Status TarReader::BeginEntry(char type, uint64_t stored) {
  ApplyPax();
  if (const auto size = pax_.find("size"); size != pax_.end()) {
    ASSIGN_OR_RETURN(stored, ParseUint(size->second, kMaxSize));
  }
  entry_.kind = KindOf(type);
  // Old tars tell a directory by its slash.
  if (entry_.kind == TarEntry::Kind::kFile && entry_.name.ends_with('/'))
    entry_.kind = TarEntry::Kind::kDirectory;
  stored_ =
      entry_.kind == TarEntry::Kind::kFile || entry_.kind == TarEntry::Kind::kOther ? stored : 0;
  padding_ = PaddingOf(stored_);
  entry_.size = stored_;
  place_ = 0;
  runs_.clear();
  run_ = 0;
  map_bytes_ = kBlock;
  const bool sparse = pax_.contains("GNU.sparse.major");
  if (sparse && (pax_["GNU.sparse.major"] != "1" || pax_["GNU.sparse.minor"] != "0"))
    return NoTar("a sparse file of an unknown format");
  if (sparse) {
    ASSIGN_OR_RETURN(entry_.size, ParseUint(pax_["GNU.sparse.realsize"], kMaxSize));
  }
  pax_.clear();
  state_ = sparse ? State::kSparseMap : State::kData;
  return sink_.begin(entry_);
}

// Whole blocks: the count of runs, then offset and size of each, a decimal number a line.
Status TarReader::TakeSparseMap() {
  const auto end_of = [this](size_t lines) {
    size_t at = 0;
    for (; lines > 0 && at != std::string::npos; --lines) {
      at = buffer_.find('\n', at);
      if (at != std::string::npos) ++at;
    }
    return at;
  };
  ASSIGN_OR_RETURN(const uint64_t count,
                   ParseUint(std::string_view(buffer_).substr(0, buffer_.find('\n')), kMaxRuns));
  const size_t used = end_of(1 + 2 * count);
  if (used == std::string::npos || buffer_.size() < used + PaddingOf(used)) {
    if (buffer_.size() > 4 * kMaxMetaBytes) return NoTar("an endless sparse map");
    map_bytes_ = buffer_.size() + 1;  // tried again when there is more
    return OkStatus();
  }
  const size_t whole = used + PaddingOf(used);
  if (whole > stored_) return NoTar("a sparse map longer than its file");
  const std::vector<std::string> lines = Split(Take(whole).substr(0, used), '\n');
  stored_ -= whole;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const uint64_t offset, ParseUint(lines[1 + 2 * i], kMaxSize));
    ASSIGN_OR_RETURN(const uint64_t size, ParseUint(lines[2 + 2 * i], kMaxSize));
    if (size > 0) runs_.push_back({.offset = offset, .size = size});
  }
  state_ = State::kData;
  if (!runs_.empty()) place_ = runs_[0].offset;
  return OkStatus();
}

Status TarReader::TakeData() {
  if (stored_ == 0) return EndEntry();
  size_t size = static_cast<size_t>(std::min<uint64_t>(stored_, buffer_.size()));
  if (!runs_.empty()) {
    if (run_ == runs_.size()) return NoTar("a sparse file with more data than its map");
    const uint64_t left = runs_[run_].offset + runs_[run_].size - place_;
    size = static_cast<size_t>(std::min<uint64_t>(size, left));
  }
  RETURN_IF_ERROR(sink_.data(place_, std::string_view(buffer_).substr(0, size)));
  buffer_.erase(0, size);
  stored_ -= size;
  place_ += size;
  if (!runs_.empty() && place_ == runs_[run_].offset + runs_[run_].size && ++run_ < runs_.size())
    place_ = runs_[run_].offset;
  return stored_ == 0 ? EndEntry() : OkStatus();
}

Status TarReader::EndEntry() {
  state_ = State::kPadding;
  return sink_.end();
}

}  // namespace hutch::tools
