#include "rootfs/layer_jobs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <thread>

#include "base/rooted_path.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr int kProgressMs = 200;

struct Running {
  LayerJob* job;
  SourceFiles::File input;
  off_t begin;
  UnpackProcess process;
};

Error LayerError(const LayerJob& job, Error error) {
  const std::string& shown = job.layer.digest.empty() ? job.layer.diff_id : job.layer.digest;
  if (!shown.empty()) error.what = "layer " + shown + ": " + error.what;
  return error;
}

Error Corrupt(const LayerJob& job, const std::string& why) {
  return LayerError(job, Error{.code = Code::kCorrupt, .what = why});
}

Result<Running> Start(SourceFiles::File input, const std::string& parent, LayerJob* job) {
  if (!job->layer.digest.empty() && input.size != job->layer.size)
    return Corrupt(*job, "has " + std::to_string(input.size) + " bytes, not " +
                             std::to_string(job->layer.size));
  job->layer.size = input.size;
  ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make(parent));
  job->directory.emplace(std::move(directory));
  const off_t begin = ::lseek(input.fd.get(), 0, SEEK_CUR);
  ASSIGN_OR_RETURN(UnpackProcess process, UnpackProcess::Start({job->mode, input.fd.get(),
                                                                input.size, job->directory->fs()}));
  return Running{job, std::move(input), begin, std::move(process)};
}

// trusted.overlay.* needs privilege in the initial user namespace, which the unpacker has not.
Status MarkOpaque(const LayerJob& job) {
  ASSIGN_OR_RETURN(const UniqueFd root, hutch::Open(job.directory->fs(), O_RDONLY | O_DIRECTORY));
  for (const std::string& directory : job.report.opaque) {
    ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(root.get(), directory, Links::kNone));
    const auto fd = path.Open(O_RDONLY | O_DIRECTORY);
    // Replaced by a later entry of the layer: a file hides what is below by itself.
    if (!fd && (fd.error().sys == ENOENT || fd.error().sys == ENOTDIR || fd.error().sys == ELOOP))
      continue;
    if (!fd) return fd.error();
    if (::fsetxattr(fd->get(), "trusted.overlay.opaque", "y", 1, 0) != 0)
      return SysError(errno, "mark opaque /" + directory);
  }
  return OkStatus();
}

Status Complete(Running& running) {
  LayerJob& job = *running.job;
  auto report = running.process.Finish();
  if (!report) return LayerError(job, std::move(report).error());
  job.report = *std::move(report);
  // First: an error in bytes that are not the layer's says nothing about the layer.
  if (!job.layer.digest.empty() && !job.report.digest.empty() &&
      job.report.digest != job.layer.digest)
    return Corrupt(job, "its bytes have digest " + job.report.digest);
  if (job.report.error) return LayerError(job, *job.report.error);
  if (job.report.digest.empty()) return LayerError(job, Error{.what = "a report without digest"});
  if (job.layer.diff_id.empty()) job.layer.diff_id = job.report.diff_id;
  if (job.report.diff_id != job.layer.diff_id)
    return Corrupt(job, "unpacks to " + job.report.diff_id + ", not " + job.layer.diff_id);
  job.layer.digest = job.report.digest;
  if (job.mode == UnpackMode::kLayer) return MarkOpaque(job);
  job.directory.reset();
  return OkStatus();
}

// Starts those whose bytes are there, in order, as long as there is room.
Status StartReady(LayerInputs& inputs, const std::string& parent, std::list<LayerJob*>* waiting,
                  std::list<Running>* running) {
  const size_t at_once = std::clamp(std::thread::hardware_concurrency(), 1u, kUnpackersAtOnce);
  for (auto next = waiting->begin(); next != waiting->end() && running->size() < at_once;) {
    LayerJob* const job = *next;
    auto input = inputs.Open(job->layer);
    if (!input)
      return input.error().code == Code::kNotFound ? Corrupt(*job, "the image does not contain it")
                                                   : LayerError(*job, std::move(input).error());
    if (input->state == LayerInput::State::kPending) {
      ++next;
      continue;
    }
    next = waiting->erase(next);
    if (input->state == LayerInput::State::kNotNeeded) continue;
    ASSIGN_OR_RETURN(Running started, Start(std::move(input->file), parent, job));
    running->push_back(std::move(started));
  }
  return OkStatus();
}

// Waits until something has to be done or kProgressMs have passed; completes what ended.
Status Step(LayerInputs& inputs, std::list<Running>* running, uint64_t* done_bytes) {
  std::vector<struct pollfd> waits;
  for (const Running& r : *running) waits.push_back({r.process.report_fd(), POLLIN, 0});
  RETURN_IF_ERROR(inputs.Wait(&waits, kProgressMs));
  auto r = running->begin();
  for (const struct pollfd& wait : waits) {
    const auto current = r++;
    if (wait.revents == 0) continue;
    ASSIGN_OR_RETURN(const bool ended, current->process.Read());
    if (!ended) continue;
    RETURN_IF_ERROR(Complete(*current));
    *done_bytes += current->input.size;
    running->erase(current);
  }
  return OkStatus();
}

// The unpacker shares our file description: where it stands is how far it has come.
uint64_t BytesRead(const std::list<Running>& running) {
  uint64_t bytes = 0;
  for (const Running& r : running)
    bytes +=
        static_cast<uint64_t>(std::max<off_t>(::lseek(r.input.fd.get(), 0, SEEK_CUR) - r.begin, 0));
  return bytes;
}

// What the source's files say where no descriptor did (a docker-archive).
uint64_t TotalBytes(LayerInputs& inputs, const std::vector<LayerJob>& jobs) {
  uint64_t total = 0;
  for (const LayerJob& job : jobs) {
    if (!job.layer.digest.empty()) {
      total += job.layer.size;
      continue;
    }
    const auto input = inputs.Open(job.layer);
    if (input) total += input->file.size;
  }
  return total;
}

}  // namespace

Result<LayerInput> FileInputs::Open(const LayerSource& layer) {
  ASSIGN_OR_RETURN(SourceFiles::File file, files_.OpenFile(layer.file));
  return LayerInput{LayerInput::State::kReady, std::move(file)};
}

Status FileInputs::Wait(std::vector<struct pollfd>* waits, int timeout_ms) {
  const int ready = ::poll(waits->data(), waits->size(), timeout_ms);
  return ready >= 0 || errno == EINTR ? OkStatus() : SysError(errno, "poll");
}

Status RunLayerJobs(const LayerRun& run, LayerInputs& inputs, std::vector<LayerJob>* jobs) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(run.seconds);
  const uint64_t total = TotalBytes(inputs, *jobs);
  uint64_t done = 0;
  std::list<LayerJob*> waiting;
  for (LayerJob& job : *jobs) {
    inputs.Want(job.layer);
    waiting.push_back(&job);
  }
  std::list<Running> running;  // an early return kills what runs
  while (!waiting.empty() || !running.empty()) {
    RETURN_IF_ERROR(StartReady(inputs, run.parent, &waiting, &running));
    if (waiting.empty() && running.empty()) break;
    const bool unpacking = !running.empty();
    RETURN_IF_ERROR(Step(inputs, &running, &done));
    if (run.progress && unpacking)
      run.progress({"unpack", run.subject, done + BytesRead(running), total});
    if (std::chrono::steady_clock::now() > deadline)
      return Error{.code = Code::kTooLarge, .what = "unpacking takes too long"};
  }
  return OkStatus();
}

}  // namespace hutch::rootfs
