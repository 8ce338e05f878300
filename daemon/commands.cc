#include "daemon/commands.h"

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace hutch::daemon {
namespace {

// Beside the directories of processes: the highest number of one that was removed.
constexpr std::string_view kLastRemovedName = "removed";
constexpr size_t kLastRemovedBytes = 16;

}  // namespace

Commands::Commands(Loop& loop, runtime::Sandbox& sandbox, cgroups::Mode mode, Pace* pace)
    : place_{.loop = loop, .sandbox = sandbox, .mode = mode, .counters = {}, .pace = pace} {
  place_.finished = [this](uint32_t process) { RetireSoon(process); };
}

Commands::~Commands() {
  *alive_ = false;
  Untrack();
}

void Commands::TrackFiles(std::unique_ptr<FileTracker> tracker) {
  tracker_ = std::move(tracker);
  place_.tracker = tracker_.get();
  place_.others = [this](uint32_t process) {
    const cgroups::ProcessGroup* group = place_.sandbox.ProcessCgroup(process);
    if (count() > 1 || group == nullptr) return Others::kRunning;
    const auto populated = group->Populated();
    return populated.has_value() && !*populated ? Others::kQuiet : Others::kRunning;
  };
}

// Who waits for it is called back by this.
void Commands::Untrack() {
  place_.tracker = nullptr;
  tracker_.reset();
}

void Commands::TouchFiles() {
  if (tracker_ != nullptr) tracker_->Touch();
}

size_t Commands::running() const {
  const auto commands = std::count_if(running_.begin(), running_.end(),
                                      [](const auto& item) { return item.second->is_command(); });
  return static_cast<size_t>(commands) + waiting_.size();
}

size_t Commands::awaited() const {
  const auto commands = std::count_if(running_.begin(), running_.end(), [](const auto& item) {
    return item.second->is_command() && !item.second->keeps_until_empty();
  });
  return static_cast<size_t>(commands) + waiting_.size();
}

void Commands::Pause() {
  place_.paused = true;
  for (const auto& [process, one] : running_) one->Paused();
}

void Commands::Continue(uint64_t paused_ms) {
  place_.paused = false;
  place_.paused_ms = paused_ms;
  const auto running = running_;
  for (const auto& [process, one] : running) one->Continued();
}

Status Commands::Admit(size_t max_running) {
  const size_t now = running();
  if (now >= max_running)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(now) + " commands run in this sandbox already"};
  // With anything else alive the counters may have moved since they were read last.
  if (count() > 0) place_.counters = ReadCounters(place_.sandbox);
  return OkStatus();
}

Result<std::shared_ptr<Exec>> Commands::Run(ExecFields fields, oci::ProcessSpec spec,
                                            size_t max_running, Exec::Done done, ExecSink sink) {
  RETURN_IF_ERROR(Admit(max_running));
  const bool tracked = fields.track_files && tracker_ != nullptr;
  std::shared_ptr<Exec> exec =
      Exec::Make(place_, std::move(fields), std::move(spec), std::move(done), std::move(sink));
  if (tracked) return RunTracked(std::move(exec));
  TouchFiles();
  RETURN_IF_ERROR(Launch(exec));
  return exec;
}

Status Commands::Launch(const std::shared_ptr<Exec>& exec) {
  RETURN_IF_ERROR(exec->Launch());
  running_.emplace(exec->process(), exec);
  return OkStatus();
}

Result<std::shared_ptr<Exec>> Commands::RunTracked(std::shared_ptr<Exec> exec) {
  const Others others = count() == 0 ? Others::kQuiet : Others::kRunning;
  struct Call {
    bool pending = true;  // our caller learns of an error by itself
    Status status = OkStatus();
  };
  const auto call = std::make_shared<Call>();
  waiting_.insert(exec);
  tracker_->Begin(others, [this, alive = alive_, exec, call](FileTracker::SnapshotPointer before) {
    if (!*alive) return;
    waiting_.erase(exec);
    if (exec->answered()) return;  // killed meanwhile
    exec->SetFilesBefore(std::move(before));
    Status launched = Launch(exec);
    if (call->pending)
      call->status = std::move(launched);
    else if (!launched.has_value())
      exec->Fail(std::move(launched).error());
  });
  call->pending = false;
  RETURN_IF_ERROR(call->status);
  return exec;
}

Result<std::shared_ptr<ToolProcess>> Commands::RunTool(ToolSpec tool, oci::ProcessSpec spec,
                                                       ToolProcess::Done done) {
  const size_t tools = running_.size() + waiting_.size() - running();
  if (tools >= kMaxToolsPerSandbox)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(tools) + " file requests run in this sandbox already"};
  TouchFiles();
  ASSIGN_OR_RETURN(
      std::shared_ptr<ToolProcess> process,
      ToolProcess::Start(place_.sandbox, std::move(tool), std::move(spec), std::move(done)));
  running_.emplace(process->process(), process);
  return process;
}

Result<std::shared_ptr<BackgroundProcess>> Commands::StartBackground(
    ProcessFields fields, oci::ProcessSpec spec, size_t max_running, const std::string& directory,
    BackgroundProcess::Started started) {
  RETURN_IF_ERROR(Admit(max_running));
  TouchFiles();
  ASSIGN_OR_RETURN(std::shared_ptr<BackgroundProcess> process,
                   BackgroundProcess::Start(place_, std::move(fields), std::move(spec), directory,
                                            std::move(started)));
  running_.emplace(process->facts().number, process);
  background_.emplace(process->facts().number, process);
  return process;
}

Result<std::shared_ptr<BackgroundProcess>> Commands::FindBackground(uint32_t process) const {
  const auto it = background_.find(process);
  if (it != background_.end()) return it->second;
  return Error{.code = Code::kNotFound, .what = "no process \"p" + std::to_string(process) + "\""};
}

void Commands::DropBackground(uint32_t process) {
  const auto it = background_.find(process);
  if (it == background_.end()) return;
  KeepNumber(process, it->second->directory());
  const Status removed = it->second->RemoveFiles();
  if (!removed.has_value())
    Log(LogLevel::kError, "cannot remove the log of a process",
        {{"sandbox", place_.sandbox.id()}, {"error", removed.error().ToString()}});
  background_.erase(it);
}

// For the next daemon, which otherwise might give a new process the name of one that was removed.
void Commands::KeepNumber(uint32_t process, const std::string& directory) {
  if (process <= last_removed_) return;
  std::string all = directory.substr(0, directory.rfind('/'));
  const Status kept = WriteFileAtomic(all.append("/").append(kLastRemovedName),
                                      std::to_string(process), Durability::kMemory);
  if (!kept.has_value())
    return Log(LogLevel::kWarning, "the name of a removed process may be given again",
               {{"sandbox", place_.sandbox.id()}, {"error", kept.error().ToString()}});
  last_removed_ = process;
}

void Commands::TakeUpNumber(const std::string& directory) {
  const Result<std::string> text =
      ReadFile(directory + "/" + std::string(kLastRemovedName), kLastRemovedBytes);
  if (!text.has_value()) return;  // none was removed
  const Result<uint64_t> number = ParseUint(*text, UINT32_MAX - 1);
  if (!number.has_value()) return;
  last_removed_ = static_cast<uint32_t>(*number);
  place_.sandbox.SkipProcessNumbers(last_removed_);
}

// Oldest first.
void Commands::TrimBackground() {
  const auto over = [](const auto& item) {
    return item.second->ended() && !item.second->streams_open();
  };
  auto ended = std::count_if(background_.begin(), background_.end(), over);
  while (static_cast<size_t>(ended) > kMaxEndedProcesses) {
    const auto oldest = std::find_if(background_.begin(), background_.end(), over);
    DropBackground(oldest->first);
    --ended;
  }
}

// Nobody's, as far as is known. Only a daemon that came back meets a process it did not start: the
// request it belonged to is lost. One whose end is stored and whose children live goes on, until
// its group is empty.
void Commands::OnStrayEvent(const runtime::AgentEvent& event) {
  using Kind = runtime::AgentEvent::Kind;
  const auto known = background_.find(event.process);
  if (known != background_.end() && known->second->streams_open())
    return known->second->OnEvent(event);
  if (event.kind == Kind::kStarted)
    IgnoreError(place_.sandbox.KillProcess(event.process), "it may have ended by itself");
  if (event.kind == Kind::kExited) place_.sandbox.AcknowledgeExit(event.process);
}

void Commands::OnAgentEvent(const runtime::AgentEvent& event) {
  const auto it = running_.find(event.process);
  if (it == running_.end()) return OnStrayEvent(event);
  const std::shared_ptr<Running> running = it->second;
  const auto background = background_.find(event.process);
  const bool had_ended = background != background_.end() && background->second->ended();
  running->OnEvent(event);
  if (background != background_.end() && !had_ended && background->second->ended() && ended_)
    ended_(*background->second);
  if (running->finished() && event.kind != runtime::AgentEvent::Kind::kStarted)
    RetireSoon(event.process);
}

// After the answer has been written: removing the group is nobody's waiting time.
void Commands::RetireSoon(uint32_t process) {
  place_.loop.Post([this, alive = alive_, process] {
    if (*alive) Retire(process);
  });
}

void Commands::Retire(uint32_t process) {
  const auto it = running_.find(process);
  if (it == running_.end()) return;
  const std::shared_ptr<Running> running = std::move(it->second);
  running_.erase(it);
  if (!running->keeps_until_empty()) place_.sandbox.AcknowledgeExit(process);
  std::vector<UniqueFd> pipes = running->TakePipes();
  if (place_.sandbox.ForgetProcess(process).has_value()) return Gone(process, running);
  Linger(process, std::move(pipes), running);
}

// `running`: whose group it is, or nullptr.
void Commands::Linger(uint32_t process, std::vector<UniqueFd> pipes,
                      std::shared_ptr<Running> running) {
  leftovers_[process] =
      std::make_unique<Leftover>(place_.loop, place_.sandbox, process, std::move(pipes),
                                 [this, alive = alive_, process, running = std::move(running)] {
                                   if (!*alive) return;
                                   leftovers_.erase(process);
                                   Gone(process, running);
                                 });
}

void Commands::Gone(uint32_t process, const std::shared_ptr<Running>& running) {
  if (running == nullptr || !running->keeps_until_empty()) return;
  running->GroupGone();
  if (running->stored()) place_.sandbox.AcknowledgeExit(process);
  const auto it = background_.find(process);
  if (it != background_.end() && !it->second->ended()) background_.erase(it);  // never ran
  TrimBackground();
}

void Commands::TakeUp(const std::string& directory) {
  place_.counters = ReadCounters(place_.sandbox);
  TakeUpBackground(directory);
  for (const uint32_t process : place_.sandbox.Processes()) {
    if (running_.contains(process)) continue;
    const auto known = background_.find(process);
    Linger(process, {}, known == background_.end() ? nullptr : known->second);
  }
}

void Commands::TakeUpBackground(const std::string& directory) {
  const Result<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.has_value()) return;  // none ever ran
  TakeUpNumber(directory);
  for (const std::string& name : *names) {
    if (name.starts_with(kLastRemovedName)) continue;
    Result<std::shared_ptr<BackgroundProcess>> process =
        BackgroundProcess::TakeUp(place_, directory + "/" + name);
    if (!process.has_value()) {
      // Without a record nobody was told of it; what cannot be read now may be later.
      const Code code = process.error().code;
      if (code == Code::kNotFound || code == Code::kInvalidArgument || code == Code::kCorrupt)
        IgnoreError(RemoveTree(directory + "/" + name), "the sandbox's end removes it");
      continue;
    }
    const uint32_t number = (*process)->facts().number;
    background_.emplace(number, *process);
    if (!(*process)->ended()) running_.emplace(number, *process);
    place_.sandbox.SkipProcessNumbers(number);
  }
}

void Commands::KillAll() {
  const auto running = running_;
  const auto waiting = waiting_;
  for (const auto& [process, one] : running)
    if (!one->keeps_until_empty()) one->Kill();
  for (const auto& exec : waiting) exec->Kill();
}

void Commands::SandboxEnded() {
  const auto running = running_;
  for (const auto& exec : std::exchange(waiting_, {})) exec->SandboxEnded();
  Untrack();
  for (const auto& [process, one] : running) one->SandboxEnded();
  for (const auto& [process, one] : background_) one->SandboxEnded();
  running_.clear();
  leftovers_.clear();
}

}  // namespace hutch::daemon
