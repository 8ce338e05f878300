// Every bound a client can reach, in one place. docs/limits.md and docs/config.md name those an
// operator may change.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace hutch::daemon {

using Milliseconds = std::chrono::milliseconds;

// HTTP.
inline constexpr size_t kMaxHeaderBytes = 16 * 1024;      // request line and header fields together
inline constexpr size_t kMaxBodyBytes = 8 * 1024 * 1024;  // decoded, chunked or not
inline constexpr size_t kMaxBodyBytesInFlight = 256 * 1024 * 1024;  // of all connections together
inline constexpr size_t kMaxChunkOverheadBytes = 16 * 1024;  // unparsed chunk sizes and trailers
inline constexpr size_t kMaxQueryParameters = 64;
inline constexpr size_t kMaxStreamBacklogBytes =
    1024 * 1024;  // events or messages a slow reader has not fetched
inline constexpr size_t kMaxWebSocketMessageBytes =
    1024 * 1024;  // from a client, fragments together
inline constexpr size_t kMaxJsonDepth = 64;

// Sandboxes.
inline constexpr size_t kMaxNameBytes = 63;
inline constexpr size_t kMaxLabels = 64;
inline constexpr size_t kMaxLabelBytes = 1024;  // a key or a value
inline constexpr size_t kMaxEnvEntries = 1024;
inline constexpr size_t kMaxEnvBytes = 128 * 1024;
inline constexpr size_t kMaxPathBytes = 4095;
inline constexpr size_t kMaxSandboxRecordBytes = 1024 * 1024;  // of a sandbox in its state file
inline constexpr size_t kRecordReserveBytes = 32 * 1024;       // of them, for what is written later
inline constexpr size_t kMaxWritableDirectories = 16;  // of an image and a template together
inline constexpr size_t kMaxWritableDirectoryDepth = 32;
inline constexpr uint64_t kMinDiskBytes = 1024 * 1024;
inline constexpr uint64_t kMinPids = 4;
inline constexpr Milliseconds kReadyDeadline{30'000};  // from the request to an answering agent
inline constexpr size_t kMaxTombstones = 1024;         // ended sandboxes that stay listed
inline constexpr size_t kMaxHistory = 32;              // moves of one sandbox that are kept
inline constexpr size_t kMaxKeptErrorBytes = 2048;     // of why it failed
inline constexpr Milliseconds kTakeUpGrace{5'000};  // no idle time is over sooner after a restart
inline constexpr Milliseconds kFreezeDeadline{10'000};  // then it is thawed, and not paused
inline constexpr Milliseconds kStopLook{20};            // between two looks whether all have ended
inline constexpr Milliseconds kStopPatience{10'000};    // for what was killed to be gone
inline constexpr uint64_t kStopSeconds = 10;            // for processes to end by themselves
inline constexpr uint64_t kMaxStopSeconds = 3600;       // the most that may be asked for
inline constexpr size_t kStoppedSandboxes = 1000;       // stopped sandboxes
inline constexpr size_t kStopThreads = 2;               // that copy their files
inline constexpr Milliseconds kRecordsBehind{1000};     // until what lives is on the disk
inline constexpr Milliseconds kPauseRetry{30'000};      // after an expiry that could not pause
inline constexpr Milliseconds kRemoveRetryFirst{1};     // doubles up to kRemoveRetryMax
inline constexpr Milliseconds kRemoveRetryMax{50};
inline constexpr Milliseconds kRemoveDeadline{10'000};  // then the sandbox is quarantined
inline constexpr Milliseconds kQuarantineRetry{10'000};

// Snapshots, forks and diffs.
inline constexpr size_t kMaxForks = 100;   // of one call
inline constexpr size_t kForksAtOnce = 8;  // made at the same time, of one call
inline constexpr size_t kSealsAtOnce = 2;  // sandboxes frozen and read; others wait and run
inline constexpr size_t kSealsWaiting = 64;
inline constexpr size_t kMaxSealedLabelBytes = 16 * 1024;  // of an image, listing directories
inline constexpr Milliseconds kKeptImageSweep{2'000};  // between looks for unused images of forks
inline constexpr size_t kMaxDiffChanges = 10'000;      // of one answer

// Asking twice, and by whom.
inline constexpr size_t kMaxSessionKeyBytes = 128;
inline constexpr size_t kMaxIdempotencyKeyBytes = 255;
inline constexpr size_t kMaxKeptAnswers = 4096;  // for Idempotency-Keys
inline constexpr size_t kMaxKeptAnswerBytes = 16 * 1024 * 1024;
inline constexpr Milliseconds kKeptAnswerTime{86'400'000};
inline constexpr size_t kMaxSelectors = 32;     // of one list
inline constexpr size_t kMaxOwnersShown = 100;  // by GET /v1/info

// Files: what a process inside may answer.
inline constexpr size_t kMaxFileReplyBytes = 17 * 1024 * 1024;  // all lines; of a watch one line
inline constexpr size_t kMaxFileReplyLines = 100'000;           // of one answer
inline constexpr size_t kFileReadsPerTurn = 8;  // of 16 KiB, before others get their turn
inline constexpr size_t kMaxFileRequestArgBytes = 32 * 1024;  // beyond it goes as a file
inline constexpr size_t kMaxFileErrorBytes = 8192;            // an error's message

// Commands.
inline constexpr size_t kMaxToolsPerSandbox = 32;  // programs of ours, at once
inline constexpr size_t kMaxCommandArgs = 4096;
inline constexpr size_t kReadChunkBytes = 64 * 1024;  // one read(2) of a command's output
inline constexpr size_t kReadPerTurnBytes =
    128 * 1024;  // of one stream before others get their turn
inline constexpr size_t kDrainBytes =
    4 * 1024 * 1024;  // after the command's end: more than a pipe can hold
inline constexpr Milliseconds kKillDeadline{
    10'000};  // a killed command that has not ended is answered anyway
inline constexpr Milliseconds kForgetRetry{1'000};  // backstop for groups with leftover children

// Background processes.
inline constexpr uint64_t kMinLogBytes = 64 * 1024;  // of one process's log
inline constexpr uint64_t kDefaultLogBytes = 16 * 1024 * 1024;
inline constexpr uint64_t kMaxLogBytes = 1024 * 1024 * 1024;
inline constexpr size_t kPumpBytes =
    64 * 1024;  // of one stream into its log before others get their turn
inline constexpr size_t kMaxOutputReadBytes = 4 * 1024 * 1024;  // of a log in one answer
inline constexpr size_t kTailReadBytes = 64 * 1024;  // of a log for one follower at a time
inline constexpr size_t kMaxEndedProcesses = 64;  // remembered in a sandbox; then the oldest goes
inline constexpr size_t kMaxPendingStdinBytes = 1024 * 1024;  // accepted and not yet read
inline constexpr uint64_t kMaxWaitSeconds = 3600;             // of one call that waits
inline constexpr Milliseconds kHeartbeat{15'000};  // between events while nothing happens
inline constexpr size_t kMaxFollowers = 64;        // of one process's output at once
// Files that commands change.
inline constexpr size_t kMaxFilesChanged = 1000;     // listed in one answer
inline constexpr size_t kMaxInlineWalkFiles = 2000;  // walked on the loop's thread
// Remembered between commands, of all sandboxes together; beyond it a walk is repeated.
inline constexpr size_t kMaxKeptSnapshotBytes = 64 * 1024 * 1024;
inline constexpr size_t kMaxAuditQueue = 8192;             // entries not written yet
inline constexpr size_t kMaxAuditPage = 1000;              // entries of one answer
inline constexpr size_t kMaxAuditCommandBytes = 4096;      // kept of a command's arguments
inline constexpr size_t kMaxAuditContentBytes = 2048;      // kept of a stream, where asked for
inline constexpr size_t kMaxAuditDetailBytes = 16 * 1024;  // of one entry

// Over TCP.
inline constexpr size_t kMaxTokens = 256;
inline constexpr size_t kMaxTokensFileBytes = 128 * 1024;
inline constexpr size_t kMaxRefusalsPerSecond = 10;  // then they are answered late and not recorded
inline constexpr size_t kMaxHeldRefusals = 1024;     // answered late, at once
inline constexpr Milliseconds kRefusalDelay{1'000};

// Configuration.
inline constexpr size_t kMaxConfigErrors = 100;  // told of one file

// Ports.
inline constexpr size_t kMaxForwards = 64;                // of one sandbox
inline constexpr size_t kMaxForwardConnections = 256;     // of one of them, at once
inline constexpr size_t kMaxProxiedConnections = 256;     // of one sandbox by the API, at once
inline constexpr uint16_t kMinHostPort = 1024;            // below are the host's own services
inline constexpr size_t kMaxAnswerHeadBytes = 64 * 1024;  // of an answer from inside
inline constexpr size_t kMaxAnswerFields = 256;
inline constexpr Milliseconds kConnectInsideTime{10'000};

// Watching.
inline constexpr size_t kMaxKeptEvents = 4096;        // of the rare kinds; and of the frequent ones
inline constexpr size_t kMaxEventDetailBytes = 2048;  // of one event
inline constexpr size_t kMaxEventFollowers = 64;      // at once
inline constexpr size_t kMaxEventPage = 1000;         // events of one answer
inline constexpr size_t kEventsPerTurn = 256;         // told before others get their turn
inline constexpr Milliseconds kStatsInterval{1'000};  // between events of a stream
inline constexpr Milliseconds kMinStatsWindow{500};   // that a CPU share is of, after the first

// Templates.
inline constexpr size_t kMaxDevcontainerBytes = 128 * 1024;  // of a devcontainer.json
inline constexpr size_t kMaxDevcontainerDepth = 32;
inline constexpr size_t kMaxTemplates = 256;            // looked at in the directory
inline constexpr size_t kMaxTemplateCommands = 32;      // of one property, at the same time
inline constexpr size_t kMaxLifecycleTailBytes = 4096;  // of a failed command's output

// Networks.
inline constexpr size_t kMaxNetworks = 256;            // that sandboxes join
inline constexpr size_t kMaxSecrets = 256;             // in the operator's directory
inline constexpr size_t kMaxSecretFileBytes = 65536;   // of one
inline constexpr size_t kMaxSecretHeaderBytes = 64;    // the name of its header
inline constexpr size_t kMaxSecretValueBytes = 16384;  // as it is sent
inline constexpr size_t kMaxSecretHosts = 64;

// Users of images.
inline constexpr size_t kMaxPasswdBytes = 1024 * 1024;
inline constexpr size_t kCachedImageUsers = 32;
inline constexpr size_t kMaxUserLayers = 256;  // distinct passwd and group files kept on disk

// Numbers shown inside.
inline constexpr Milliseconds kHonestRefresh{2'000};  // while commands run
inline constexpr Milliseconds kHonestFresh{100};      // not written again when a command starts
inline constexpr size_t kCpuinfoBytes = 4 * 1024 * 1024;

// Workers.
inline constexpr size_t kMaxQueuedJobs = 64;
inline constexpr size_t kMaxQueuedNetworkJobs = 8192;

// Networks.
inline constexpr size_t kKeptDenials = 100;  // of a sandbox, for GET .../network
inline constexpr size_t kPullsAtOnce = 4;
inline constexpr Milliseconds kProgressInterval{50};

// Pools of sandboxes.
inline constexpr size_t kMaxPools = 64;           // by configuration; as many again by the API
inline constexpr uint64_t kMaxPoolMembers = 256;  // of one
inline constexpr size_t kMaxPoolNameBytes = 63;
inline constexpr size_t kMaxPoolsFileBytes = 4 * 1024 * 1024;  // what the API's pools say, in all
inline constexpr size_t kPoolMakesAtOnce = 4;                  // of all pools
inline constexpr Milliseconds kPoolMakeInterval{125};          // between two beginnings
inline constexpr Milliseconds kPoolBackoffFirst{1'000};        // after a failure; then twice that
inline constexpr Milliseconds kPoolBackoffMax{300'000};
inline constexpr Milliseconds kPoolYieldPause{5'000};  // none is made after room was given up
inline constexpr Milliseconds kPoolPlanTime{10'000};   // then its template is read anew
inline constexpr Milliseconds kPoolCheckTime{30'000};  // for a first command

}  // namespace hutch::daemon
