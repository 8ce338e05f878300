#include "daemon/template_start.h"

#include <sys/wait.h>

#include <algorithm>

#include "base/log.h"
#include "daemon/audit_records.h"
#include "daemon/sandbox_pools.h"
#include "daemon/template_library.h"
#include "daemon/volume_keeping.h"
#include "daemon/wanted_image.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using State = LifecycleFacts::State;

constexpr size_t kShownCommandBytes = 200;
constexpr size_t kShownNameBytes = 1024;
constexpr size_t kKeptErrorBytes = 4096;  // in the record

// Text of others as a part of ours: short, UTF-8, and on one line.
std::string Shown(std::string_view text, size_t max_bytes) {
  std::string shown(text.substr(0, max_bytes));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, ' ');
  return EncodeBytes(shown, Encoding::kUtf8).text;
}

// What a command is called in events and errors.
std::string NameOf(const TemplateCommand& command) {
  if (!command.name.empty()) return Shown(command.name, kShownNameBytes);
  const bool shell = command.args.size() == 3 && command.args[0] == "/bin/sh";
  return Shown(shell ? command.args[2] : Join(command.args, " "), kShownCommandBytes);
}

// Its time-out and its exit code are told alike: what happened, and what was written last.
std::string Outcome(const ExecResult& result) {
  const Cause cause = DecideCause(result.end.facts);
  const int status = result.end.facts.wait_status;
  if (cause == Cause::kExited) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  if (cause == Cause::kSignaled) return "was ended by signal " + std::to_string(WTERMSIG(status));
  return std::string("ended: ") + CauseName(cause);
}

std::string LastLine(const std::string& text) {
  const std::string_view trimmed = Trim(text);
  return Shown(trimmed.substr(trimmed.rfind('\n') + 1), kShownNameBytes);
}

}  // namespace

struct SandboxStart::Command {
  const char* stage;
  TemplateCommand what;
  Pieces pieces{Encoding::kAuto};
  std::string tail;  // the last of its output

  void Keep(std::string_view bytes) {
    tail.append(bytes);
    if (tail.size() > 2 * kMaxLifecycleTailBytes) Cut();
  }
  void Cut() {
    if (tail.size() > kMaxLifecycleTailBytes) tail.erase(0, tail.size() - kMaxLifecycleTailBytes);
  }
};

Result<CreatePlan> PlanCreate(const Json& request, const Config& config) {
  CreatePlan plan;
  const Json* name = nullptr;
  if (request.is_object() && request.contains("template") && !request["template"].is_null())
    name = &request["template"];
  if (name == nullptr) {
    ASSIGN_OR_RETURN(plan.fields, ParseSandboxFields(request, config));
    return plan;
  }
  if (!name->is_string())
    return Error{
        .code = Code::kInvalidArgument, .what = "template must be a string", .field = "template"};
  if (request.contains("image"))
    return Error{.code = Code::kInvalidArgument,
                 .what = "image and template do not go together: a template has its image",
                 .field = "image"};
  ASSIGN_OR_RETURN(FoundTemplate found, TemplateLibrary(config).Find(name->get<std::string>()));
  if (!found.made.has_value()) {
    Error error = std::move(found.made).error();
    error.what = "template " + found.name + ": " + error.what;
    error.field = "template";
    return error;
  }
  Template made = *std::move(found.made);
  Json own = request;
  own.erase("template");
  ASSIGN_OR_RETURN(plan.fields, ParseSandboxFields(MergeRequest(made.settings, own), config));
  RETURN_IF_ERROR(CheckNeeds(made.needs, plan.fields));
  if (const auto env = own.find("env"); env != own.end() && env->is_object())
    for (const auto& [key, value] : env->items()) made.remote_env.erase(key);
  plan.fields.template_name = found.name;
  plan.fields.remote_env = std::move(made.remote_env);
  plan.fields.directories = std::move(made.directories);
  plan.fields.has_lifecycle = !made.stages.empty();
  plan.stages = std::move(made.stages);
  plan.awaited = made.awaited;
  return plan;
}

SandboxStart::SandboxStart(Api& api, const Request& request, Responder responder,
                           const CreatePlan& plan)
    : api_(api),
      responder_(std::move(responder)),
      heartbeat_(api.loop, responder_),
      events_(request.wants_events || request.wants_ndjson),
      ahead_(plan.fields.pooled),
      stages_(plan.stages),
      awaited_(plan.awaited) {
  audited_.peer = request.peer;
}

void SandboxStart::Refused(const Error& error) {
  if (!ahead_) AuditDenial(api_, audited_.peer, nullptr, "create", error);
  Close(0, ErrorJson(error));
}

void SandboxStart::Run(SandboxFields fields) {
  const auto self = shared_from_this();
  // Weak: what this waits for holds it, and the connection must not hold itself through it.
  responder_.OnHangup([weak = weak_from_this()] {
    if (const auto start = weak.lock()) start->HungUp();
  });
  auto leave = WithImage(
      api_, audited_.peer, fields,
      [self](const rootfs::Progress& report) { self->Tell("progress", ProgressJson(report)); },
      [self, fields](Result<std::string> image) {
        self->leave_ = {};
        self->Prepare(fields, std::move(image));
      });
  // It may have gone while it was told how far the pull is.
  if (gone_ && leave) return leave();
  leave_ = std::move(leave);
}

void SandboxStart::Prepare(SandboxFields fields, Result<std::string> image) {
  if (gone_) return;
  if (!image.has_value()) return Refused(image.error());
  fields.image = *std::move(image);
  if (ahead_ || api_.pools == nullptr) return ShareVolumes(std::move(fields));
  if (SandboxEntry* taken = api_.pools->Take(fields, stages_, audited_.peer)) {
    stages_.clear();  // they have run
    return Made(taken);
  }
  api_.pools->MakeRoom(fields, audited_.peer,
                       [self = shared_from_this(), fields] { self->ShareVolumes(fields); });
}

void SandboxStart::ShareVolumes(SandboxFields fields) {
  if (gone_) return;
  if (fields.volumes.empty()) return Create(std::move(fields));
  const auto volumes = fields.volumes;
  api_.volumes.Prepare(volumes, [self = shared_from_this(),
                                 fields = std::move(fields)](const Result<HeldVolumes>& held) {
    if (!held.has_value()) return self->gone_ ? void() : self->Refused(held.error());
    self->Create(fields);
  });
}

void SandboxStart::Create(SandboxFields fields) {
  if (gone_) return;
  const auto self = shared_from_this();
  Result<std::string> id = api_.sandboxes.Create(
      std::move(fields), audited_.peer, [self](Result<SandboxEntry*> entry) { self->Made(entry); });
  if (!id.has_value()) return Refused(id.error());
  id_ = *id;
}

// Not before there is something to tell: what is refused at once gets a plain answer.
void SandboxStart::OpenEvents() {
  if (std::exchange(opened_, true)) return;
  responder_.StartEvents();
  heartbeat_.Start();
}

void SandboxStart::Hold(std::shared_ptr<CreateClaim> claim) {
  claim_ = std::move(claim);
  claim_->OnAlone([weak = weak_from_this()] {
    const auto start = weak.lock();
    if (start != nullptr && start->hung_up_) start->Leave();
  });
}

void SandboxStart::HungUp() {
  hung_up_ = true;
  heartbeat_.Stop();
  if (claim_ == nullptr || !claim_->awaited()) Leave();
}

// Whoever asked never learns its id: it would live on unknown.
void SandboxStart::Leave() {
  if (std::exchange(gone_, true)) return;
  claim_.reset();
  if (const auto leave = std::exchange(leave_, {})) leave();
  if (id_.empty()) return;
  const Result<SandboxEntry*> entry = api_.sandboxes.Find(id_);
  if (answered_ || !entry.has_value() || (*entry)->sandbox == nullptr) return;
  if ((*entry)->moments.state == SandboxState::kCreating) return api_.sandboxes.Abandon(id_);
  if (!(*entry)->ending) (*entry)->ended_by = audited_.peer;
  api_.sandboxes.Destroy(**entry, MoveCause::kAbandoned, [](const Status&) {});
}

void SandboxStart::Made(Result<SandboxEntry*> entry) {
  if (!ahead_) AuditCreation(api_, audited_.peer, entry);
  if (!entry.has_value()) return Close(0, ErrorJson(entry.error()));
  id_ = (*entry)->facts.id;
  if (stages_.empty()) return Answer();
  // Its first command starts once the loop is done with the sandbox's own beginning.
  api_.loop.Post([self = shared_from_this()] { self->Next(); });
}

// The stage that is due, or the end.
void SandboxStart::Next() {
  if (failed_ || (gone_ && !answered_)) return;
  const bool last = stage_ == stages_.size();
  constexpr char kWhy[] = "it is logged, and the commands ran all the same";
  if (stage_ >= awaited_ && !answered_)
    Answer();
  else if (last)
    IgnoreError(Record(State::kDone), kWhy);
  if (last || failed_) return;
  const TemplateStage& stage = stages_[stage_];
  IgnoreError(Record(State::kRunning), kWhy);
  running_ = stage.commands.size();
  execs_.clear();
  for (const TemplateCommand& what : stage.commands) {
    if (failed_) return;
    Begin(std::make_shared<Command>(Command{.stage = stage.property, .what = what, .tail = {}}));
  }
}

Status SandboxStart::Record(State state, const std::string& error) {
  const Result<SandboxEntry*> entry = api_.sandboxes.Find(id_);
  if (!entry.has_value()) return entry.error();
  LifecycleFacts facts{.state = state,
                       .awaited = !answered_ && stage_ < awaited_ && state == State::kRunning,
                       .stage = stage_ < stages_.size() ? stages_[stage_].property : "",
                       .error = Shown(error, kKeptErrorBytes)};
  return api_.sandboxes.SetLifecycle(**entry, std::move(facts));
}

void SandboxStart::Begin(const std::shared_ptr<Command>& command) {
  const auto self = shared_from_this();
  Tell("progress", {{"stage", command->stage},
                    {"subject", NameOf(command->what)},
                    {"done", stage_},
                    {"total", stages_.size()}});
  const Result<SandboxEntry*> entry = api_.sandboxes.FindRunning(id_);
  if (!entry.has_value()) return Ended(command, entry.error());
  ExecFields fields;
  fields.args = command->what.args;
  fields.timeout_seconds = static_cast<double>(api_.config.template_command_seconds);
  fields.merge_output = true;
  fields.track_files = false;
  const auto record = std::make_shared<AuditEntry>(BeginExecAudit(api_, **entry, audited_, fields));
  const ExecSink sink{.on_output =
                          [self, command](StreamId id, std::string_view bytes) {
                            command->Keep(bytes);
                            EncodedText text = command->pieces.Of(id).Next(bytes);
                            if (text.text.empty()) return;
                            Json json = ChunkJson(id, std::move(text));
                            json["stage"] = command->stage;
                            json["subject"] = NameOf(command->what);
                            self->Tell("output", json);
                          },
                      .congested = [self] { return self->Congested(); }};
  // What it leads to happens in a turn of its own: it may end the sandbox that tells of it.
  Result<std::shared_ptr<Exec>> exec = api_.sandboxes.Run(
      **entry, std::move(fields),
      [self, command, record](Result<ExecResult> result) {
        EndExecAudit(self->api_, std::move(*record), result);
        self->api_.loop.Post(
            [self, command, result = std::move(result)] { self->Ended(command, result); });
      },
      sink);
  if (!exec.has_value()) return Ended(command, exec.error());
  execs_.push_back(*exec);
}

void SandboxStart::Ended(const std::shared_ptr<Command>& command,
                         const Result<ExecResult>& result) {
  --running_;
  if (failed_) return;
  const bool good = result.has_value() && DecideCause(result->end.facts) == Cause::kExited &&
                    WEXITSTATUS(result->end.facts.wait_status) == 0;
  if (good) {
    if (running_ > 0) return;
    ++stage_;
    return Next();
  }
  command->Cut();
  const std::string tail = EncodeBytes(command->tail, Encoding::kUtf8).text;
  const std::string subject = std::string(command->stage) + " \"" + NameOf(command->what) + "\" ";
  Error error{.code = Code::kBadState, .what = "", .field = "template"};
  if (result.has_value()) {
    const std::string last = LastLine(tail);
    error.what = subject + Outcome(*result) + (last.empty() ? "" : ": " + last);
  } else {
    error.code = result.error().code;
    error.sys = result.error().sys;
    error.what = subject + "could not run: " + result.error().what;
  }
  Json reason = ErrorJson(error);
  reason["error"]["step"] = command->stage;
  reason["error"]["output"] = tail;
  if (result.has_value()) {
    const Cause cause = DecideCause(result->end.facts);
    reason["error"]["cause"] = CauseName(cause);
    reason["error"]["exit_code"] =
        cause == Cause::kExited ? Json(WEXITSTATUS(result->end.facts.wait_status)) : Json();
  }
  Fail(std::move(reason), error);
}

void SandboxStart::Fail(Json reason, const Error& error) {
  failed_ = true;
  IgnoreError(Record(State::kFailed, error.what), "it is logged, and told below");
  Log(LogLevel::kWarning, "a template's command failed",
      {{"sandbox", id_}, {"error", error.ToString()}});
  if (answered_) return;
  const Result<SandboxEntry*> entry = api_.sandboxes.Find(id_);
  if (!ahead_)
    AuditDenial(api_, audited_.peer, entry.has_value() ? *entry : nullptr, "create", error);
  const auto answer = [self = shared_from_this(), reason = std::move(reason),
                       status = CodeHttpStatus(error.code)](const Status&) {
    if (!self->gone_) self->Close(status, reason);
  };
  if (!entry.has_value() || (*entry)->sandbox == nullptr) return answer(OkStatus());
  if (!(*entry)->ending) (*entry)->error = error;
  api_.sandboxes.Destroy(**entry, MoveCause::kTemplateFailed, answer);
}

void SandboxStart::Answer() {
  const Result<SandboxEntry*> entry = api_.sandboxes.Find(id_);
  if (!entry.has_value()) return Close(0, ErrorJson(entry.error()));
  // Before the client knows of it, so that a later daemon does not take it for unknown: what still
  // says that somebody waits would be removed then.
  if (!stages_.empty()) {
    answered_ = true;
    const Status saved = Record(stage_ < stages_.size() ? State::kRunning : State::kDone);
    answered_ = false;
    if (!saved.has_value()) return Fail(ErrorJson(saved.error()), saved.error());
  }
  Close(201, api_.sandboxes.ToJson(**entry));
}

// Status 0: that of the error's code.
void SandboxStart::Close(int status, const Json& json) {
  answered_ = true;
  heartbeat_.Stop();
  const bool error = json.contains("error") && status != 201;
  if (status == 0)
    status = CodeHttpStatus(
        CodeOfName(json["error"]["code"].get<std::string>()).value_or(Code::kInternal));
  if (const auto claim = std::exchange(claim_, nullptr)) claim->Finish(status, json);
  if (gone_ || hung_up_) return;
  if (!events_ || (error && !opened_)) return responder_.Send(JsonReply(status, json));
  OpenEvents();
  responder_.Event(error ? "error" : "result", oci::PrintJson(json));
  responder_.End();
}

void SandboxStart::Tell(const char* event, const Json& json) {
  if (!events_ || answered_ || gone_ || hung_up_) return;
  OpenEvents();
  responder_.Event(event, oci::PrintJson(json));
}

bool SandboxStart::Congested() {
  if (!events_ || answered_ || gone_ || hung_up_ || !responder_.Congested()) return false;
  if (drain_asked_) return true;
  drain_asked_ = true;
  responder_.OnDrained([self = shared_from_this()] {
    self->drain_asked_ = false;
    for (const std::weak_ptr<Exec>& one : std::vector(self->execs_))
      if (const auto exec = one.lock()) exec->Resume();
  });
  return true;
}

}  // namespace hutch::daemon
