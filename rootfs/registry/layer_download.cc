#include "rootfs/registry/layer_download.h"

#include <algorithm>

#include "base/text.h"
#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr int kMostWrong = 2;  // a first time, and one more

// "bytes 100-999/1000": whether that is all from `begin` on of `size`.
bool IsRestOf(const std::string& content_range, uint64_t begin, uint64_t size) {
  const std::string span = "bytes " + std::to_string(begin) + "-" + std::to_string(size - 1) + "/";
  return content_range == span + std::to_string(size) || content_range == span + "*";
}

}  // namespace

LayerDownload::LayerDownload(Session& session, LayerSource layer, std::string directory,
                             std::function<bool(const std::string&)> has_layer)
    : session_(session),
      layer_(std::move(layer)),
      directory_(std::move(directory)),
      has_layer_(std::move(has_layer)) {}

Error LayerDownload::Corrupt(const std::string& why) const {
  return Error{.code = Code::kCorrupt, .what = why};
}

Status LayerDownload::Step() {
  Status done = StepOnce();
  if (done.has_value()) return done;
  Error error = std::move(done).error();
  error.what = "layer " + layer_.digest + ": " + error.what;
  return error;
}

Status LayerDownload::StepOnce() {
  if (state_ == State::kLocking) return LockPart();
  if (state_ == State::kHashing) {
    ASSIGN_OR_RETURN(const bool all, part_->HashSome(kHashSliceBytes));
    if (!all) return OkStatus();
    if (part_->size() == layer_.size) return Verify();
    state_ = State::kFetching;
  }
  return state_ == State::kFetching ? Fetch() : OkStatus();
}

Status LayerDownload::LockPart() {
  ASSIGN_OR_RETURN(part_, PartFile::TryLock(
                              directory_, {session_.reference().host, layer_.digest, layer_.size}));
  if (!part_) return OkStatus();
  // Whoever had it may have finished.
  if (has_layer_(layer_.diff_id)) {
    state_ = State::kNotNeeded;
    return part_->Remove();
  }
  if (part_->size() > layer_.size) RETURN_IF_ERROR(part_->Restart());
  furthest_ = part_->size();
  state_ = part_->size() == 0 ? State::kFetching : State::kHashing;
  return OkStatus();
}

std::vector<std::string> LayerDownload::Headers() const {
  if (part_->size() == 0 || !use_range_) return {};
  return {"Range: bytes=" + std::to_string(part_->size()) + "-"};
}

Status LayerDownload::Fetch() {
  if (exchange_ == nullptr) {
    Endpoint& endpoint = session_.endpoints()[endpoint_];
    const std::string path = "/v2/" + session_.reference().repository + "/blobs/" + layer_.digest;
    if (!use_range_) RETURN_IF_ERROR(part_->Restart());
    const bool last = endpoint_ + 1 == session_.endpoints().size();
    exchange_ =
        std::make_unique<Exchange>(session_, endpoint,
                                   ExchangeRequest{.path = path,
                                                   .headers = [this] { return Headers(); },
                                                   .retries = last ? session_.options().retries : 0,
                                                   .sink = this,
                                                   .furthest = [this] { return furthest_; }});
  }
  const Result<bool> answered = exchange_->Step();
  if (!answered) return AfterFailure(answered.error());
  if (!*answered) return OkStatus();
  const int status = exchange_->reply().status;
  exchange_.reset();
  if (status == 416) {  // it knows no such range: of these bytes there are not so many
    if (!std::exchange(use_range_, false)) return AfterFailure(Corrupt("no range was asked for"));
    return OkStatus();
  }
  return Verify();
}

// Whether another way is left: without ranges, once more from the start, or at the next endpoint.
Status LayerDownload::AfterFailure(Error error) {
  exchange_.reset();
  if (std::exchange(range_failed_, false)) {
    use_range_ = false;
    return OkStatus();
  }
  if (error.code == Code::kNoSpace || error.code == Code::kKernel) return error;
  RETURN_IF_ERROR(session_.CheckCancelled());
  if (error.code == Code::kCorrupt && ++wrong_ < kMostWrong) return StartOver();
  if (error.code == Code::kCorrupt) RETURN_IF_ERROR(part_->Restart());
  if (endpoint_ + 1 < session_.endpoints().size()) {
    ++endpoint_;
    wrong_ = 0;
    use_range_ = true;
    return OkStatus();
  }
  if (error.code == Code::kCorrupt) IgnoreError(part_->Remove(), "it is empty, and swept some day");
  return error;
}

Status LayerDownload::StartOver() {
  state_ = State::kFetching;
  return part_->Restart();
}

Status LayerDownload::Begin(const HttpReply& head) {
  const bool asked = part_->size() != 0 && use_range_;
  if (head.status == 206) {
    if (asked && IsRestOf(head.Header("content-range"), part_->size(), layer_.size))
      return OkStatus();
    if (!asked) return Corrupt("a range that was not asked for");
    range_failed_ = true;
    return Corrupt("another range than was asked for");
  }
  // Whatever was asked for, this is all of it.
  if (part_->size() != 0) RETURN_IF_ERROR(part_->Restart());
  const auto length = ParseUint(head.Header("content-length"));
  if (length && *length != layer_.size)
    return Corrupt("is " + std::to_string(*length) + " bytes, not " + std::to_string(layer_.size));
  return OkStatus();
}

Status LayerDownload::Take(std::string_view bytes) {
  if (bytes.size() > layer_.size - part_->size())
    return Corrupt("more than its " + std::to_string(layer_.size) + " bytes came");
  RETURN_IF_ERROR(part_->Append(bytes));
  furthest_ = std::max(furthest_, part_->size());
  return OkStatus();
}

Status LayerDownload::Verify() {
  if (part_->size() != layer_.size)
    return AfterFailure(Corrupt("has " + std::to_string(part_->size()) + " bytes, not " +
                                std::to_string(layer_.size)));
  const std::string digest = part_->Digest();
  if (digest != layer_.digest) return AfterFailure(Corrupt("its bytes have digest " + digest));
  state_ = State::kReady;
  return part_->Unlock();
}

Result<UniqueFd> LayerDownload::OpenForReading() const {
  CHECK(state_ == State::kReady);
  return part_->OpenForReading();
}

Status LayerDownload::RemovePart() { return part_ ? part_->Remove() : OkStatus(); }

}  // namespace hutch::rootfs::registry
