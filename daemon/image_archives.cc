#include "daemon/image_archives.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/images.h"
#include "daemon/stream_rate.h"
#include "rootfs/limits.h"

namespace hutch::daemon {
namespace {

constexpr int kPollMs = 200;
constexpr int kPipeBytes = 1 << 20;
constexpr size_t kCopyBytes = 256 << 10;

Error TooSlow() {
  return Error{.code = Code::kUnavailable, .what = "less than 16 KiB/s for a minute"};
}
Error NobodyWaits() { return Error{.code = Code::kUnavailable, .what = "nobody waits for it"}; }

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

Result<Pipe> LargePipe(int flags) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe(flags));
  // A bonus: what the kernel grants without it is enough.
  if (::fcntl(pipe.write.get(), F_SETPIPE_SZ, kPipeBytes) < 0) return pipe;
  return pipe;
}

}  // namespace

struct ImageArchives::Saving {
  explicit Saving(Responder r) : responder(std::move(r)) {}
  Responder responder;
  rootfs::Image image;
  rootfs::ArchiveFormat format = rootfs::ArchiveFormat::kOci;
  std::string name;
  Pipe pipe;
  StreamRate rate{Now()};  // begins anew when the archive is planned
  std::atomic<bool> cancelled{false};
};

struct ImageArchives::Loading {
  std::shared_ptr<Responder> responder;
  std::string reference;
  Loaded done;
  UniqueFd pipe, file;
  std::optional<Result<uint64_t>> received;
  std::optional<Status> written;
};

ImageArchives::~ImageArchives() {
  stopping_ = true;
  for (const auto& weak : savings_)
    if (const auto saving = weak.lock()) saving->cancelled = true;
}

// --- out

void ImageArchives::Save(const std::string& reference, rootfs::ArchiveFormat format,
                         Responder responder) {
  auto image = store_.Resolve(reference);
  if (!image) return responder.Send(image.error());
  auto pipe = LargePipe(O_NONBLOCK);
  if (!pipe) return responder.Send(pipe.error());
  const auto saving = std::make_shared<Saving>(std::move(responder));
  saving->format = format;
  saving->pipe = std::move(*pipe);
  // By the name that was asked for, if it is one; by an id its first one.
  for (const std::string& name : image->references)
    if (saving->name.empty() || name == reference || name == reference + ":latest")
      saving->name = name;
  saving->image = *std::move(image);
  std::erase_if(savings_, [](const auto& weak) { return weak.expired(); });
  savings_.push_back(saving);
  saving->responder.OnHangup([weak = std::weak_ptr(saving)] {
    if (const auto gone = weak.lock()) gone->cancelled = true;
  });
  const Status submitted = streams_.Submit([this, saving] { RunSave(saving); });
  if (!submitted.has_value()) saving->responder.Send(submitted.error());
}

void ImageArchives::RunSave(const std::shared_ptr<Saving>& saving) {
  const auto archive = rootfs::ImageArchive::Plan(store_, saving->image, saving->format,
                                                  saving->name, saving->cancelled);
  if (!archive) {
    loop_.Post([saving, error = archive.error()] { saving->responder.Send(error); });
    return;
  }
  const UniqueFd pipe = std::move(saving->pipe.write);
  loop_.Post([saving, size = archive->size_bytes()] {
    saving->responder.SendStream(
        {.status = 200, .content_type = "application/x-tar", .headers = {}, .length = size},
        std::move(saving->pipe.read), [saving](const Result<uint64_t>& sent) {
          if (!sent.has_value()) saving->cancelled = true;
        });
  });
  saving->rate = StreamRate(Now());
  const Status written =
      archive->Write([&](std::string_view bytes) { return Pump(*saving, pipe.get(), bytes); });
  if (!written.has_value() && written.error().sys != EPIPE && !saving->cancelled)
    Log(LogLevel::kWarning, "an image was not saved whole",
        {{"image", saving->image.id}, {"error", written.error().ToString()}});
}

// The pipe does not block: a client that takes little must not keep a thread for long.
Status ImageArchives::Pump(Saving& saving, int pipe_fd, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::write(pipe_fd, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      if (!saving.rate.Add(static_cast<uint64_t>(n), Now())) return TooSlow();
      continue;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) return SysError(errno, "write to the client");
    if (saving.cancelled) return NobodyWaits();
    if (!saving.rate.Add(0, Now())) return TooSlow();
    struct pollfd wait = {pipe_fd, POLLOUT, 0};
    if (::poll(&wait, 1, kPollMs) < 0 && errno != EINTR) return SysError(errno, "poll");
  }
  return OkStatus();
}

// --- in

void ImageArchives::Load(const std::string& reference, std::optional<uint64_t> content_length,
                         std::shared_ptr<Responder> responder, Loaded done) {
  const auto loading = std::make_shared<Loading>();
  loading->reference = reference;
  loading->responder = std::move(responder);
  loading->done = std::move(done);
  if (content_length.value_or(0) > rootfs::kMaxArchiveBytes)
    return loading->done(
        Error{.code = Code::kTooLarge,
              .what = "an archive of more than " + FormatSize(rootfs::kMaxArchiveBytes)});
  auto file = hutch::Open(state_dir_ + "/images", O_TMPFILE | O_RDWR, 0600);
  if (!file) return loading->done(file.error());
  auto pipe = LargePipe(0);
  if (!pipe) return loading->done(pipe.error());
  loading->file = *std::move(file);
  loading->pipe = std::move(pipe->read);
  const Status submitted = streams_.Submit([this, loading] {
    auto written = std::make_shared<Status>(Fill(*loading));
    loading->pipe.reset();  // after an error the sender must not wait for a reader
    loop_.Post([this, loading, written] {
      loading->written = std::move(*written);
      EndLoad(loading);
    });
  });
  if (!submitted.has_value()) return loading->done(submitted.error());
  loading->responder->ReceiveBody(std::move(pipe->write), [this, loading](Result<uint64_t> bytes) {
    loading->received = std::move(bytes);
    EndLoad(loading);
  });
}

Status ImageArchives::Fill(const Loading& loading) {
  std::vector<char> buffer(kCopyBytes);
  uint64_t total = 0;
  StreamRate rate(Now());
  while (true) {
    if (!rate.Add(0, Now())) return TooSlow();
    struct pollfd wait = {loading.pipe.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, kPollMs);
    if (stopping_) return NobodyWaits();
    if (ready < 0 && errno != EINTR) return SysError(errno, "poll");
    if (ready <= 0) continue;
    const ssize_t n = ::read(loading.pipe.get(), buffer.data(), buffer.size());
    if (n == 0) return OkStatus();
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return SysError(errno, "read the archive");
    total += static_cast<uint64_t>(n);
    if (!rate.Add(static_cast<uint64_t>(n), Now())) return TooSlow();
    if (total > rootfs::kMaxArchiveBytes)
      return Error{.code = Code::kTooLarge,
                   .what = "an archive of more than " + FormatSize(rootfs::kMaxArchiveBytes)};
    RETURN_IF_ERROR(WriteAll(loading.file.get(), {buffer.data(), static_cast<size_t>(n)}));
  }
}

// Both sides have ended: what was received is whole only if both say so.
void ImageArchives::EndLoad(const std::shared_ptr<Loading>& loading) {
  if (!loading->received || !loading->written) return;
  // First: a reader that gave up is what the sender complains of.
  if (!loading->written->has_value()) return loading->done(loading->written->error());
  if (!loading->received->has_value()) return loading->done(loading->received->error());
  const Status submitted = worker_.Submit([this, loading] {
    auto image = std::make_shared<Result<rootfs::Image>>(
        store_.Load(loading->file.get(), loading->reference, nullptr));
    loop_.Post([loading, image] {
      loading->done(image->has_value() ? Result<oci::Json>(ImageJson(**image)) : image->error());
    });
  });
  if (!submitted.has_value()) loading->done(submitted.error());
}

}  // namespace hutch::daemon
