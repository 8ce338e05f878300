#include "daemon/volume_archives.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "daemon/stream_rate.h"

namespace hutch::daemon {
namespace {

constexpr int kPollMs = 200;

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

}  // namespace

struct VolumeArchives::Sending {
  explicit Sending(Responder r) : responder(std::move(r)) {}
  Responder responder;
  std::string name;
  Pipe pipe;
  StreamRate rate{Now()};
  std::atomic<bool> cancelled{false};

  // The pipe does not block: a client that takes little must not keep a thread for long.
  Status Write(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd, bytes.data(), bytes.size());
      if (n < 0 && errno != EAGAIN && errno != EINTR) return SysError(errno, "write to the client");
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      if (cancelled || !rate.Add(n > 0 ? static_cast<uint64_t>(n) : 0, Now()))
        return Error{.code = Code::kUnavailable, .what = "nobody waits for it"};
      struct pollfd wait = {fd, POLLOUT, 0};
      if (n <= 0 && ::poll(&wait, 1, kPollMs) < 0 && errno != EINTR) return SysError(errno, "poll");
    }
    return OkStatus();
  }
};

struct VolumeArchives::Receiving {
  std::string name;
  std::shared_ptr<Responder> responder;
  Imported done;
  UniqueFd pipe;
  std::optional<Result<uint64_t>> received;
  std::optional<Status> written;
};

VolumeArchives::~VolumeArchives() {
  for (const auto& weak : sendings_)
    if (const auto sending = weak.lock()) sending->cancelled = true;
}

void VolumeArchives::Export(const std::string& name, Responder responder) {
  const auto facts = volumes_.Find(name);
  if (!facts) return responder.Send(facts.error());
  auto pipe = MakePipe(O_NONBLOCK);
  if (!pipe) return responder.Send(pipe.error());
  const auto sending = std::make_shared<Sending>(std::move(responder));
  sending->name = name;
  sending->pipe = std::move(*pipe);
  std::erase_if(sendings_, [](const auto& weak) { return weak.expired(); });
  sendings_.push_back(sending);
  sending->responder.OnHangup([weak = std::weak_ptr(sending)] {
    if (const auto gone = weak.lock()) gone->cancelled = true;
  });
  const Status submitted = streams_.Submit([this, sending] { Send(sending); });
  if (!submitted.has_value()) sending->responder.Send(submitted.error());
}

void VolumeArchives::Send(const std::shared_ptr<Sending>& sending) {
  const auto mount = volumes_.Attach(sending->name);
  if (!mount) {
    loop_.Post([sending, error = mount.error()] { sending->responder.Send(error); });
    return;
  }
  const UniqueFd pipe = std::move(sending->pipe.write);
  loop_.Post([sending] {
    sending->responder.SendStream(
        {.status = 200, .content_type = "application/x-tar", .headers = {}, .length = {}},
        std::move(sending->pipe.read), [sending](const Result<uint64_t>& sent) {
          if (!sent.has_value()) sending->cancelled = true;
        });
  });
  sending->rate = StreamRate(Now());
  const Status written = volumes_.Export(
      sending->name, [&](std::string_view bytes) { return sending->Write(pipe.get(), bytes); });
  if (!written.has_value() && written.error().sys != EPIPE && !sending->cancelled)
    Log(LogLevel::kWarning, "a volume was not exported whole",
        {{"volume", sending->name}, {"error", written.error().ToString()}});
}

void VolumeArchives::Import(const std::string& name, std::shared_ptr<Responder> responder,
                            Imported done) {
  const auto receiving = std::make_shared<Receiving>();
  receiving->name = name;
  receiving->responder = std::move(responder);
  receiving->done = std::move(done);
  const auto facts = volumes_.Find(name);
  if (!facts) return receiving->done(facts.error());
  auto pipe = MakePipe();
  if (!pipe) return receiving->done(pipe.error());
  receiving->pipe = std::move(pipe->read);
  const Status submitted = streams_.Submit([this, receiving] {
    auto written =
        std::make_shared<Status>(volumes_.Import(receiving->name, receiving->pipe.get()));
    receiving->pipe.reset();  // after an error the sender must not wait for a reader
    loop_.Post([this, receiving, written] {
      receiving->written = std::move(*written);
      EndImport(receiving);
    });
  });
  if (!submitted.has_value()) return receiving->done(submitted.error());
  receiving->responder->ReceiveBody(std::move(pipe->write),
                                    [this, receiving](Result<uint64_t> bytes) {
                                      receiving->received = std::move(bytes);
                                      EndImport(receiving);
                                    });
}

// Whole only if both sides say so. The unpacker's first: one that gave up is what the sender
// complains of.
void VolumeArchives::EndImport(const std::shared_ptr<Receiving>& receiving) {
  if (!receiving->received || !receiving->written) return;
  if (!receiving->written->has_value()) return receiving->done(*receiving->written);
  if (!receiving->received->has_value()) return receiving->done(receiving->received->error());
  receiving->done(OkStatus());
}

}  // namespace hutch::daemon
