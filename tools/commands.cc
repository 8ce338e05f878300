#include "tools/commands.h"

#include <unistd.h>

#include <chrono>

#include "base/file.h"
#include "base/text.h"

namespace hutch::tools {
namespace {

constexpr Positional kImageAndCommand[] = {
    {"IMAGE", &Options::image, Names::kImages, false},
    {"COMMAND", &Options::command, Names::kCommand, false},
};
constexpr Positional kImage[] = {{"IMAGE", &Options::image, Names::kImages, false}};
constexpr Positional kIdAndCommand[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"COMMAND", &Options::command, Names::kCommand, false},
};
constexpr Positional kId[] = {{"ID", &Options::id, Names::kSandboxes, true}};
constexpr Positional kIdAndProcess[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"PROCESS", &Options::process, Names::kProcesses, true},
};
constexpr Positional kIdAndOptionalProcess[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"PROCESS", &Options::process, Names::kProcesses, false},
};
constexpr Positional kOptionalId[] = {{"ID", &Options::id, Names::kSandboxes, false}};
constexpr Positional kOptionalIds[] = {{"ID", &Options::ids, Names::kSandboxes, false}};
constexpr Positional kPath[] = {{"PATH", &Options::path, Names::kFiles, true}};
constexpr Positional kPullReference[] = {{"REFERENCE", &Options::reference, Names::kNothing, true}};
constexpr Positional kCatalogName[] = {{"NAME", &Options::name, Names::kCatalog, true}};
constexpr Positional kReference[] = {{"IMAGE", &Options::id, Names::kImages, true}};
constexpr Positional kReferenceAndName[] = {
    {"IMAGE", &Options::id, Names::kImages, true},
    {"NAME:TAG", &Options::reference, Names::kNothing, true},
};
constexpr Positional kIdAndNewImage[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"NAME:TAG", &Options::reference, Names::kNothing, true},
};
constexpr Positional kIdAndPath[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"PATH", &Options::path, Names::kNothing, false},
};
constexpr Positional kReferences[] = {{"IMAGE", &Options::ids, Names::kImages, true}};
constexpr Positional kTemplate[] = {{"TEMPLATE", &Options::id, Names::kTemplates, true}};
constexpr Positional kNetworkName[] = {{"NETWORK", &Options::id, Names::kNetworks, true}};
constexpr Positional kNetworkNames[] = {{"NETWORK", &Options::ids, Names::kNetworks, true}};
constexpr Positional kPoolAndImage[] = {
    {"POOL", &Options::id, Names::kPools, true},
    {"IMAGE", &Options::image, Names::kImages, false},
};
constexpr Positional kPoolNames[] = {{"POOL", &Options::ids, Names::kPools, true}};
constexpr Positional kNewName[] = {{"NAME", &Options::id, Names::kNothing, true}};
constexpr Positional kVolumeName[] = {{"VOLUME", &Options::id, Names::kVolumes, true}};
constexpr Positional kVolumeNames[] = {{"VOLUME", &Options::ids, Names::kVolumes, true}};
constexpr Positional kVolumeAndSize[] = {
    {"VOLUME", &Options::id, Names::kVolumes, true},
    {"SIZE", &Options::size, Names::kNothing, true},
};
constexpr Positional kVolumeAndNewName[] = {
    {"VOLUME", &Options::id, Names::kVolumes, true},
    {"NEW", &Options::reference, Names::kNothing, true},
};
constexpr Positional kVolumeAndFile[] = {
    {"VOLUME", &Options::id, Names::kVolumes, true},
    {"FILE", &Options::path, Names::kFiles, false},
};
constexpr Positional kPreset[] = {{"PRESET", &Options::reference, Names::kPresets, false}};
constexpr Positional kShell[] = {{"SHELL", &Options::shell, Names::kShells, true}};

constexpr Positional kSourceAndDestination[] = {
    {"SOURCE", &Options::source, Names::kPlaces, true},
    {"DESTINATION", &Options::destination, Names::kPlaces, true},
};
constexpr Positional kPlace[] = {{"ID:/PATH", &Options::source, Names::kPlaces, true}};
constexpr Positional kPlaces[] = {{"ID:/PATH", &Options::places, Names::kPlaces, true}};

// clang-format off
constexpr CommandRow kFilesCommands[] = {
    {"ls", "List a directory of a sandbox", 0, kPlace, "hutch files ls box:/workspace", RunFilesList, {}},
    {"cat", "Print files of a sandbox", 0, kPlaces, "hutch files cat box:/workspace/log", RunFilesPrint, {}},
    {"rm", "Remove files of a sandbox", kRemoveFiles, kPlaces, "hutch files rm -r box:/workspace/build", RunFilesRemove, {}},
    {"mkdir", "Make directories in a sandbox", kMakeDirectory, kPlaces, "hutch files mkdir -p box:/workspace/a/b",
     RunFilesMakeDirectory, {}},
};
// clang-format on

constexpr Positional kIdAndListening[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"PORT", &Options::port, Names::kListening, true},
};
constexpr Positional kIdAndForwarded[] = {
    {"ID", &Options::id, Names::kSandboxes, true},
    {"PORT", &Options::port, Names::kForwarded, true},
};

// clang-format off
constexpr CommandRow kNetCommands[] = {
    {"show", "Show what a sandbox may reach, what it did, and what it was denied", 0, kId, "hutch net show box", RunNetShow, {}},
    {"set", "Change what a running sandbox may reach: all of it, so that what is not said is not allowed", kNetwork, kId,
     "hutch net set box --allow pkgs.example.org --allow preset:packages", RunNetSet, {}},
    {"preset", "List the daemon's presets; with \"packages\", find the hosts of this machine's package managers",
     kNetPreset | kQuiet, kPreset, "sudo hutch net preset packages --write /etc/hutch/presets.json", RunNetPreset, {}},
};

constexpr CommandRow kNetworkCommands[] = {
    {"create", "Make a network that sandboxes can join", 0, kNewName, "hutch network create ws", RunNetworkCreate, {}},
    {"ls", "List networks and their members", kQuiet, {}, "hutch network ls", RunNetworkList, {}},
    {"inspect", "Print a network with its members' addresses, as JSON", 0, kNetworkName, "hutch network inspect ws",
     RunNetworkInspect, {}},
    {"rm", "Remove networks without members", 0, kNetworkNames, "hutch network rm ws", RunNetworkRemove, {}},
};

constexpr CommandRow kPoolCommands[] = {
    {"ls", "List pools: what they keep ready, and how often it was taken", kQuiet, {}, "hutch pool ls", RunPoolList, {}},
    {"set", "Keep sandboxes ready for requests that want just these; what is not said is as in create",
     kSandbox | kNetwork | kPool, kPoolAndImage, "hutch pool set py --template python --ready 4 --max 16 --demand", RunPoolSet, {}},
    {"rm", "Remove pools with all that waits in them", 0, kPoolNames, "hutch pool rm py", RunPoolRemove, {}},
};

constexpr CommandRow kSecretCommands[] = {
    {"ls", "List the secrets that rules can name; never their values", kQuiet, {}, "hutch secret ls", RunSecretList, {}},
};

constexpr CommandRow kVolumeCommands[] = {
    {"create", "Make a volume: a directory that outlives sandboxes", kVolume, kNewName,
     "hutch volume create data --size 10GiB", RunVolumeCreate, {}},
    {"ls", "List volumes, how full they are, and who uses them", kQuiet, {}, "hutch volume ls", RunVolumeList, {}},
    {"inspect", "Print all that is known about a volume", 0, kVolumeName, "hutch volume inspect data", RunVolumeInspect, {}},
    {"rm", "Remove volumes that no sandbox uses, with everything in them", 0, kVolumeNames, "hutch volume rm data",
     RunVolumeRemove, {}},
    {"grow", "Make a volume larger", 0, kVolumeAndSize, "hutch volume grow data 20GiB", RunVolumeGrow, {}},
    {"copy", "Copy a volume as it is now; who writes to it waits meanwhile", 0, kVolumeAndNewName,
     "hutch volume copy data data-2", RunVolumeCopy, {}},
    {"export", "Write a volume's files as a tar to FILE, or stdout", 0, kVolumeAndFile, "hutch volume export data data.tar",
     RunVolumeExport, {}},
    {"import", "Put the files of a tar (plain, gzip or zstd) from FILE, or stdin, into a volume", 0, kVolumeAndFile,
     "hutch volume import data data.tar", RunVolumeImport, {}},
    {"prune", "Remove all volumes that no sandbox uses; without --yes only say which", kSelect, {},
     "hutch volume prune --label team=a --yes", RunVolumePrune, {}},
};

constexpr CommandRow kPortCommands[] = {
    {"add", "Reach a port inside from the host; prints where", kPort, kIdAndListening, "hutch port add box 127.0.0.1:8080:3000",
     RunPortAdd, {}},
    {"ls", "List the ports that are reached, and what listens inside", 0, kId, "hutch port ls box", RunPortList, {}},
    {"rm", "Stop reaching a port", 0, kIdAndForwarded, "hutch port rm box 3000", RunPortRemove, {}},
};
// clang-format on

constexpr CommandRow kTemplateCommands[] = {
    {"ls", "List the templates", kQuiet, {}, "hutch template ls", RunTemplateList, {}},
    {"inspect",
     "Print what a template makes of a sandbox, as JSON",
     0,
     kTemplate,
     "hutch template inspect python",
     RunTemplateInspect,
     {}},
    {"validate",
     "Check a devcontainer.json",
     0,
     kPath,
     "hutch template validate .devcontainer/devcontainer.json",
     RunTemplateValidate,
     {}},
};

constexpr CommandRow kImageCommands[] = {
    {"pull",
     "Get an image from a registry",
     kPull,
     kPullReference,
     "hutch image pull debian:12-slim",
     RunImagePull,
     {}},
    {"import",
     "Import an OCI layout directory, or an OCI or docker-archive tar",
     kImport,
     kPath,
     "hutch image import ./layout --name tools:1",
     RunImageImport,
     {}},
    {"build",
     "Build an image of the catalog from Debian packages",
     0,
     kCatalogName,
     "hutch image build python",
     RunImageBuild,
     {}},
    {"catalog",
     "List what can be built, and what of it is",
     kQuiet,
     {},
     "hutch image catalog",
     RunImageCatalog,
     {}},
    {"load",
     "Import an OCI or docker-archive tar that is sent to the daemon",
     kLoad,
     {},
     "hutch image load -i tools.tar --name tools:1",
     RunImageLoad,
     {}},
    {"save",
     "Write an image as one tar that podman, docker and skopeo take",
     kSave,
     kReference,
     "hutch image save python -o python.tar",
     RunImageSave,
     {}},
    {"ls", "List the images in the store", kQuiet, {}, "hutch image ls", RunImageList, {}},
    {"history",
     "Show how an image was made, the latest step first",
     0,
     kReference,
     "hutch image history python",
     RunImageHistory,
     {}},
    {"tag",
     "Give an image one more name",
     0,
     kReferenceAndName,
     "hutch image tag python:latest python:stable",
     RunImageTag,
     {}},
    {"prune",
     "Remove images without a name, and layers and downloads that nothing needs",
     kPrune,
     {},
     "hutch image prune --all --dry-run",
     RunImagePrune,
     {}},
    {"inspect",
     "Print all that is known about an image",
     0,
     kReference,
     "hutch image inspect python",
     RunImageInspect,
     {}},
    {"rm", "Remove images", 0, kReferences, "hutch image rm python:latest", RunImageRemove, {}},
};

// clang-format off
constexpr CommandRow kCommands[] = {
    {"run", "Run one command in a sandbox of its own, then destroy it", kSandbox | kNetwork | kExec, kImageAndCommand,
     "hutch run python --memory 256MiB -- python3 -c 'print(6 * 7)'", RunRun, {}},
    {"create", "Make a sandbox and print its id", kSandbox | kKeyed | kNetwork, kImage,
     "id=$(hutch create python --name box --label team=a --idle 2h)", RunCreate, {}},
    {"ls", "List sandboxes", kList | kQuiet, {}, "hutch ls --label team=a --label '!keep'", RunList, {}},
    {"inspect", "Print all that is known about a sandbox", 0, kId, "hutch inspect box", RunInspect, {}},
    {"exec", "Run a command in a running sandbox", kExec | kInSandbox | kYield, kIdAndCommand,
     "hutch exec box --timeout 5m -- sh -c 'ls -la'", RunExec, {}},
    {"shell", "Open a shell in a running sandbox: bash, or sh where there is no bash", kInSandbox | kPassesExit, kId,
     "hutch shell box", RunShell, {}},
    {"ps", "List a sandbox's background processes", kQuiet, kId, "hutch ps box", RunProcesses, {}},
    {"logs", "Print what a background process has written", kLogs, kIdAndProcess,
     "hutch logs box p3 --follow --since 10m", RunLogs, {}},
    {"attach", "Join a background process: its output, its input; ctrl-p ctrl-q leaves it running", kPassesExit,
     kIdAndProcess, "hutch attach box p3", RunAttach, {}},
    {"kill", "Send a signal to a background process, or remove it", kKill, kIdAndProcess,
     "hutch kill box p3 --signal SIGINT", RunKill, {}},
    {"wait", "Wait for a background process and pass on its exit code, or for a state of a sandbox", kWait | kPassesExit,
     kIdAndOptionalProcess, "hutch wait box --for paused,destroyed --timeout 30", RunWait, {}},
    {"cp", "Copy files and directories into and out of a sandbox; - is a tar on stdin or stdout", 0, kSourceAndDestination,
     "hutch cp ./project box:/workspace", RunCopy, {}},
    {"files", "List, print and remove files of a sandbox, make directories", 0, {}, "hutch files ls box:/workspace", nullptr,
     kFilesCommands},
    {"port", "Reach ports inside from the host, list them", 0, {}, "hutch port add box 3000", nullptr, kPortCommands},
    {"open", "Open a port inside in the browser, or print its address", kOpen, kIdAndListening, "hutch open box 3000",
     RunOpen, {}},
    {"rm", "Destroy sandboxes with everything in them", kSelect, kOptionalIds, "hutch rm --label team=a --yes", RunRemove, {}},
    {"pause", "Stop everything in a sandbox where it is, and keep it", kPause, kId, "hutch pause box --reclaim", RunPause, {}},
    {"resume", "Go on with a paused sandbox", 0, kId, "hutch resume box", RunResume, {}},
    {"snapshot", "Make an image of the files of a sandbox", 0, kIdAndNewImage, "hutch snapshot box mine:ready", RunSnapshot, {}},
    {"fork", "Make more sandboxes with the files that a sandbox has now", kFork, kId, "hutch fork box -n 4", RunFork, {}},
    {"diff", "List what a sandbox changed of its image's files", 0, kIdAndPath, "hutch diff box /workspace", RunDiff, {}},
    {"stop", "Keep a sandbox's files on disk, and end everything else of it", kStop, kId, "hutch stop box --timeout 30", RunStop, {}},
    {"start", "Start a stopped sandbox again", 0, kId, "hutch start box", RunStart, {}},
    {"heartbeat", "Put off a sandbox's idle time-out", 0, kId, "hutch heartbeat box", RunHeartbeat, {}},
    {"image", "Pull, import, build, save, list and remove images; list the catalog", 0, {}, "hutch image ls", nullptr, kImageCommands},
    {"template", "List, show and check templates", 0, {}, "hutch template ls", nullptr, kTemplateCommands},
    {"net", "Show and change what a sandbox may reach; list and find presets", 0, {}, "hutch net show box", nullptr, kNetCommands},
    {"network", "Make, list and remove networks that sandboxes join", 0, {}, "hutch network create ws", nullptr, kNetworkCommands},
    {"pool", "Keep sandboxes ready ahead of requests", 0, {}, "hutch pool ls", nullptr, kPoolCommands},
    {"secret", "List secrets", 0, {}, "hutch secret ls", nullptr, kSecretCommands},
    {"volume", "Make, list, copy, export, import and remove volumes", 0, {}, "hutch volume ls", nullptr, kVolumeCommands},
    {"audit", "Show who did what to which sandbox, oldest first", kAudit, kOptionalId,
     "hutch audit box --since 1h --kind exec", RunAudit, {}},
    {"events", "Follow what happens: sandboxes, processes, commands, images", kEvents, {},
     "hutch events --since 1h --kind sandbox.failed --kind sandbox.oom", RunEvents, {}},
    {"stats", "Show what sandboxes use, every second on a terminal", kStats, kOptionalIds, "hutch stats box --no-stream", RunStats,
     {}},
    {"top", "Show the sandboxes that use most, every second; q quits", kTop, {}, "hutch top --sort memory", RunTop, {}},
    {"info", "Show the daemon's version, limits, pools and features", 0, {}, "hutch info --json", RunInfo, {}},
    {"doctor", "Check this host for all that hutch needs; works without the daemon", 0, {},
     "sudo hutch doctor", RunDoctor, {}},
    {"completion", "Print a script that completes commands, sandboxes and images", 0, kShell,
     "hutch completion bash > /etc/bash_completion.d/hutch", RunCompletion, {}},
};
// clang-format on

}  // namespace

std::span<const CommandRow> Commands() { return kCommands; }

bool PassesExitCode(const CommandRow& row) { return (row.groups & (kExec | kPassesExit)) != 0; }
bool TakesCommand(const CommandRow& row) { return (row.groups & kExec) != 0; }

Status Print(std::string_view text) {
  auto written = WriteAll(STDOUT_FILENO, text);
  if (!written && written.error().sys == EPIPE) return OkStatus();
  return written;
}

Result<std::vector<oci::Json>> ListIn(const oci::Json& reply, const char* name) {
  oci::ObjectReader reader(reply, "");
  const oci::Json* list = reader.Member(name);
  if (list == nullptr || !list->is_array())
    return Error{.what = std::string("the daemon's reply has no ") + name};
  return std::vector<oci::Json>(list->begin(), list->end());
}

Status PrintJsonText(const oci::Json& value) {
  return Print(value.dump(2, ' ', false, oci::Json::error_handler_t::replace) + "\n");
}

// "3 minutes" needs no more precision than one unit.
std::string Age(const std::string& time) {
  const auto then = ParseRfc3339(time);
  if (!then) return "-";
  using std::chrono::duration_cast;
  const auto age = std::chrono::system_clock::now() - *then;
  const auto seconds = duration_cast<std::chrono::seconds>(age).count();
  if (seconds < 120) return std::to_string(seconds < 0 ? 0 : seconds) + "s";
  if (seconds < 7200) return std::to_string(seconds / 60) + "m";
  if (seconds < 172800) return std::to_string(seconds / 3600) + "h";
  return std::to_string(seconds / 86400) + "d";
}

void Note(const std::string& text) {
  IgnoreError(WriteAll(STDERR_FILENO, "hutch: " + text + "\n"), "nowhere is left to say it");
}

void PrintError(const Error& error, const Options& options) {
  std::string text;
  if (options.json) {
    oci::Json body = {{"code", CodeName(error.code)}, {"message", error.what}};
    if (!error.field.empty()) body["field"] = error.field;
    if (!error.hint.empty()) body["hint"] = error.hint;
    if (error.sys != 0) body["errno"] = ErrnoName(error.sys);
    text = oci::PrintJson({{"error", body}}) + "\n";
  } else {
    text = "hutch: " + Printable(error.what) + "\n";
    if (!error.hint.empty()) text += "hint: " + Printable(error.hint) + "\n";
  }
  IgnoreError(WriteAll(STDERR_FILENO, text), "nowhere is left to say it");
}

}  // namespace hutch::tools
