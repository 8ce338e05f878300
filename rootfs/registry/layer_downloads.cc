#include "rootfs/registry/layer_downloads.h"

#include <algorithm>

#include "rootfs/registry/limits.h"

namespace hutch::rootfs::registry {
namespace {

constexpr int kStepMs = 100;  // how often cancelling, locks and pauses are looked at
constexpr auto kReportEvery = std::chrono::milliseconds(200);

bool IsOver(const LayerDownload& download) {
  return download.state() == LayerDownload::State::kReady ||
         download.state() == LayerDownload::State::kNotNeeded;
}

}  // namespace

void LayerDownloads::Want(const LayerSource& layer) {
  rows_.push_back({LayerDownload(session_, layer, store_.DownloadsDirectory(),
                                 [this](const std::string& id) { return store_.HasLayer(id); })});
}

Result<LayerInput> LayerDownloads::Open(const LayerSource& layer) {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) {
    return r.download.layer().diff_id == layer.diff_id;
  });
  CHECK(row != rows_.end());
  LayerInput input;
  if (row->download.state() == LayerDownload::State::kNotNeeded)
    input.state = LayerInput::State::kNotNeeded;
  if (row->download.state() != LayerDownload::State::kReady) return input;
  ASSIGN_OR_RETURN(input.file.fd, row->download.OpenForReading());
  input.file.size = layer.size;
  input.state = LayerInput::State::kReady;
  return input;
}

void LayerDownloads::Report(Row& row) {
  const auto now = std::chrono::steady_clock::now();
  if (!progress_ || (!row.over && now - row.reported < kReportEvery)) return;
  row.reported = now;
  const LayerSource& layer = row.download.layer();
  const bool exists = row.download.state() == LayerDownload::State::kNotNeeded;
  progress_({exists ? "exists" : "download", layer.digest,
             exists ? layer.size : row.download.done_bytes(), layer.size});
}

// True when a layer came.
Result<bool> LayerDownloads::StepAll(bool* busy) {
  bool came = false;
  uint64_t active = 0;
  *busy = false;
  for (Row& row : rows_) {
    if (row.over) continue;
    if (!row.begun && active >= std::max<uint64_t>(session_.options().layers_at_once, 1)) break;
    row.begun = true;
    ++active;
    RETURN_IF_ERROR(row.download.Step());
    row.over = IsOver(row.download);
    came = came || row.over;
    *busy = *busy || row.download.IsBusy();
    Report(row);
  }
  return came;
}

Status LayerDownloads::Wait(std::vector<struct pollfd>* waits, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    RETURN_IF_ERROR(session_.CheckCancelled());
    bool busy = false;
    ASSIGN_OR_RETURN(const bool came, StepAll(&busy));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const int wait =
        came || busy ? 0 : static_cast<int>(std::clamp<int64_t>(left.count(), 0, kStepMs));
    RETURN_IF_ERROR(session_.loop().Wait(waits, wait));
    const bool ready = std::any_of(waits->begin(), waits->end(),
                                   [](const struct pollfd& w) { return w.revents != 0; });
    if (came || ready || left.count() <= 0) return OkStatus();
  }
}

void LayerDownloads::RemoveParts() {
  for (Row& row : rows_) IgnoreError(row.download.RemovePart(), "swept some day");
}

}  // namespace hutch::rootfs::registry
