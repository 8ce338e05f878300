// The commands of hutch, one row each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/client.h"
#include "tools/options.h"
#include "tools/table.h"

namespace hutch::tools {

// What a command sees of its surroundings.
struct Context {
  const Options& options;
  Client& client;
  Colours colours;  // of standard output
};

// Exit codes of hutch itself; run and exec use the second column, as a command's own code must
// stay recognisable (and docker's users expect it).
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitOwnError = 125;

struct CommandRow {
  const char* name;
  const char* help;
  uint64_t groups;  // of OptionGroup; kGlobal always
  std::span<const Positional> positionals;
  const char* example;                   // shown by --help
  Result<int> (*run)(Context&);          // the value is the exit code; nullptr for a group
  std::span<const CommandRow> children;  // "image" has them
};

std::span<const CommandRow> Commands();
// Whether a row's own errors are 125 because it passes on another program's exit code.
bool PassesExitCode(const CommandRow& row);

// Whether a row's command stands behind "--".
bool TakesCommand(const CommandRow& row);

// Rows' functions, by file.
Result<int> RunRun(Context& context);  // command_exec.cc
Result<int> RunExec(Context& context);
Result<int> RunShell(Context& context);
Result<int> RunProcesses(Context& context);  // command_processes.cc
Result<int> RunLogs(Context& context);
Result<int> RunAttach(Context& context);
Result<int> RunKill(Context& context);
Result<int> RunWait(Context& context);
Result<int> RunCreate(Context& context);  // command_sandboxes.cc
Result<int> RunList(Context& context);
Result<int> RunInspect(Context& context);
Result<int> RunRemove(Context& context);
Result<int> RunHeartbeat(Context& context);
Result<int> RunPause(Context& context);  // command_life.cc
Result<int> RunStop(Context& context);
Result<int> RunStart(Context& context);
Result<int> RunResume(Context& context);
Result<int> RunSnapshot(Context& context);  // command_snapshot.cc
Result<int> RunFork(Context& context);
Result<int> RunDiff(Context& context);
Result<int> WaitForState(Context& context);
Result<int> RunCopy(Context& context);       // command_copy.cc
Result<int> RunFilesList(Context& context);  // command_files.cc
Result<int> RunFilesPrint(Context& context);
Result<int> RunFilesRemove(Context& context);
Result<int> RunFilesMakeDirectory(Context& context);
Result<int> RunImagePull(Context& context);  // command_images.cc
Result<int> RunImageImport(Context& context);
Result<int> RunImageBuild(Context& context);
Result<int> RunImageCatalog(Context& context);
Result<int> RunImageList(Context& context);
Result<int> RunImageInspect(Context& context);
Result<int> RunImageRemove(Context& context);
Result<int> RunImageTag(Context& context);  // command_image_store.cc
Result<int> RunImageHistory(Context& context);
Result<int> RunImagePrune(Context& context);
Result<int> RunImageSave(Context& context);
Result<int> RunImageLoad(Context& context);
Result<int> RunTemplateList(Context& context);  // command_templates.cc
Result<int> RunTemplateInspect(Context& context);
Result<int> RunTemplateValidate(Context& context);
Result<int> RunNetShow(Context& context);  // command_network.cc
Result<int> RunNetSet(Context& context);
Result<int> RunNetPreset(Context& context);
Result<int> RunNetworkCreate(Context& context);
Result<int> RunNetworkList(Context& context);
Result<int> RunNetworkInspect(Context& context);
Result<int> RunNetworkRemove(Context& context);
Result<int> RunPoolList(Context& context);  // command_pools.cc
Result<int> RunPoolSet(Context& context);
Result<int> RunPoolRemove(Context& context);
Result<int> RunSecretList(Context& context);
Result<int> RunVolumeCreate(Context& context);  // command_volumes.cc
Result<int> RunVolumeList(Context& context);
Result<int> RunVolumeInspect(Context& context);
Result<int> RunVolumeRemove(Context& context);
Result<int> RunVolumeGrow(Context& context);
Result<int> RunVolumeCopy(Context& context);
Result<int> RunVolumeExport(Context& context);
Result<int> RunVolumeImport(Context& context);
Result<int> RunVolumePrune(Context& context);
Result<int> RunPortAdd(Context& context);  // command_ports.cc
Result<int> RunPortList(Context& context);
Result<int> RunPortRemove(Context& context);
Result<int> RunOpen(Context& context);
Result<int> RunEvents(Context& context);  // command_events.cc
Result<int> RunStats(Context& context);   // command_stats.cc
Result<int> RunTop(Context& context);
Result<int> RunInfo(Context& context);
Result<int> RunAudit(Context& context);       // command_info.cc
Result<int> RunCompletion(Context& context);  // completion.cc
Result<int> RunDoctor(Context& context);      // doctor/doctor.cc

// Standard output, whole. A reader that went away (EPIPE) is no error: `hutch ls | head -1`.
Status Print(std::string_view text);
// Indented JSON and a line feed.
Status PrintJsonText(const oci::Json& value);
// The reply's list of that name; an error where it has none.
Result<std::vector<oci::Json>> ListIn(const oci::Json& reply, const char* name);
// A line of hutch's own on standard error.
void Note(const std::string& text);
// How long ago a time of RFC 3339 was, in one unit: "3m".
std::string Age(const std::string& time);
// "hutch: ..." on standard error: the message and, on a line of its own, the hint; JSON on request.
void PrintError(const Error& error, const Options& options);

}  // namespace hutch::tools
