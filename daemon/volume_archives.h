// Volumes as streams: a tar out of one, a tar into one. Neither is ever in memory; bytes go between
// the connection and threads of their own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/worker.h"
#include "rootfs/volumes.h"

namespace hutch::daemon {

class VolumeArchives {
 public:
  VolumeArchives(Loop& loop, rootfs::Volumes& volumes) : loop_(loop), volumes_(volumes) {}
  ~VolumeArchives();  // ends what is under way
  VolumeArchives(const VolumeArchives&) = delete;
  VolumeArchives& operator=(const VolumeArchives&) = delete;

  // Answers with the tar; one that cannot be finished ends without its last blocks. A client slower
  // than StreamRate is gone.
  void Export(const std::string& name, Responder responder);
  // Receives a tar; `done` is told the outcome, and answers.
  using Imported = std::function<void(const Status&)>;
  void Import(const std::string& name, std::shared_ptr<Responder> responder, Imported done);

 private:
  struct Sending;
  struct Receiving;
  void Send(const std::shared_ptr<Sending>& sending);
  void EndImport(const std::shared_ptr<Receiving>& receiving);

  Loop& loop_;
  rootfs::Volumes& volumes_;
  std::vector<std::weak_ptr<Sending>> sendings_;
  static constexpr size_t kStreams = 4;  // at once; others wait
  Worker streams_{kStreams};             // last: it ends before what its jobs use
};

}  // namespace hutch::daemon
