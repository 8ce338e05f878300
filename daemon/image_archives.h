// Images as streams: one tar out of the store, one tar into it. Neither is ever in memory; bytes go
// between the connection and threads of their own, so that a slow client holds up no import.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/worker.h"
#include "rootfs/image_archive.h"
#include "rootfs/store.h"

namespace hutch::daemon {

class ImageArchives {
 public:
  // Borrows everything. What is loaded lies without a name below `state_dir` until it is imported.
  ImageArchives(Loop& loop, Worker& worker, rootfs::Store& store, std::string state_dir)
      : loop_(loop), worker_(worker), store_(store), state_dir_(std::move(state_dir)) {}
  ~ImageArchives();  // ends what is under way
  ImageArchives(const ImageArchives&) = delete;
  ImageArchives& operator=(const ImageArchives&) = delete;

  // Answers with the archive, its length told before its first byte. Errors as
  // ImageArchive::Plan; kUnavailable when too many wait. A client slower than StreamRate is gone.
  void Save(const std::string& reference, rootfs::ArchiveFormat format, Responder responder);
  // Receives a tar and imports it; `done` is told the outcome and answers. kTooLarge above
  // kMaxArchiveBytes, kUnavailable from a client slower than StreamRate, and errors as Store::Load.
  using Loaded = std::function<void(Result<oci::Json> image)>;
  void Load(const std::string& reference, std::optional<uint64_t> content_length,
            std::shared_ptr<Responder> responder, Loaded done);

 private:
  struct Saving;
  struct Loading;
  void RunSave(const std::shared_ptr<Saving>& saving);
  Status Pump(Saving& saving, int pipe_fd, std::string_view bytes) const;
  Status Fill(const Loading& loading);
  void EndLoad(const std::shared_ptr<Loading>& loading);

  Loop& loop_;
  Worker& worker_;
  rootfs::Store& store_;
  const std::string state_dir_;
  std::atomic<bool> stopping_{false};
  std::vector<std::weak_ptr<Saving>> savings_;
  static constexpr size_t kStreams = 4;  // at once; others wait
  Worker streams_{kStreams};             // last: it ends before what its jobs use
};

}  // namespace hutch::daemon
