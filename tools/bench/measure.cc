#include "tools/bench/measure.h"

#include <algorithm>
#include <latch>
#include <optional>
#include <thread>

#include "tools/bench/clock.h"
#include "tools/bench/statistics.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

const CaseRow kCases[] = {
    {"true", "cold start to exit of /bin/true", CaseKind::kCold, {"/bin/true"}},
    {"python",
     "cold start to exit of python3 -c 'print(1)'",
     CaseKind::kCold,
     {"/usr/bin/python3", "-c", "print(1)"}},
    {"exec", "/bin/true in a running sandbox", CaseKind::kExec, {"/bin/true"}},
    {"burst", "a burst of cold starts at once, /bin/true", CaseKind::kBurst, {"/bin/true"}},
    {"create", "a burst of creates at once, until ready", CaseKind::kBurstCreate, {}},
};

struct BurstRound {
  std::vector<double> samples;
  double per_second = 0;
  std::optional<Error> failed;
};

// One thread each, started before the clock runs; each times its own command.
BurstRound RunBurst(const CaseRow& row, size_t count, Contestant* contestant) {
  std::vector<Result<double>> results(count, Result<double>(0.0));
  std::latch ready(static_cast<std::ptrdiff_t>(count) + 1);
  std::vector<std::thread> threads;
  for (size_t slot = 0; slot < count; ++slot)
    threads.emplace_back([&, slot] {
      ready.arrive_and_wait();
      results[slot] = row.kind == CaseKind::kBurst ? contestant->Cold(row.argv, slot)
                                                   : contestant->Create(slot);
    });
  ready.arrive_and_wait();
  const Stopwatch watch;
  for (std::thread& thread : threads) thread.join();
  const double wall_ms = watch.ElapsedMs();
  contestant->RemoveCreated();
  BurstRound round;
  for (const Result<double>& result : results) {
    if (result)
      round.samples.push_back(*result);
    else
      round.failed = result.error();
  }
  round.per_second = static_cast<double>(round.samples.size()) / wall_ms * 1000;
  return round;
}

class CaseRun {
 public:
  CaseRun(const CaseRow& row, const Plan& plan, std::vector<Entrant>* entrants)
      : row_(row), plan_(plan), entrants_(*entrants), rates_(entrants->size()) {
    result_.row = &row;
    for (const Entrant& entrant : entrants_)
      result_.entries.push_back({.contestant = entrant.row->name, .reason = entrant.reason});
  }

  CaseResult Run() {
    const bool burst = row_.kind == CaseKind::kBurst || row_.kind == CaseKind::kBurstCreate;
    const size_t warmup = burst ? 1 : plan_.warmup;
    const size_t rounds = warmup + (burst ? plan_.burst_runs : plan_.runs);
    for (size_t round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < entrants_.size(); ++i) {
        // Another one begins each round: none always runs behind the same neighbour.
        const size_t turn = (round + i) % entrants_.size();
        if (!result_.entries[turn].reason.empty()) continue;
        std::this_thread::sleep_for(std::chrono::milliseconds(plan_.pause_ms));
        if (burst)
          TakeBurst(turn, round >= warmup);
        else
          TakeOne(turn, round >= warmup);
      }
    }
    for (size_t i = 0; i < rates_.size(); ++i) {
      std::sort(rates_[i].begin(), rates_[i].end());
      result_.entries[i].per_second = Percentile(rates_[i], 0.5);
    }
    return std::move(result_);
  }

 private:
  void Fail(size_t turn, const std::string& reason) {
    result_.entries[turn].reason = reason;
    result_.entries[turn].samples.clear();
  }
  void TakeOne(size_t turn, bool keep) {
    Contestant* contestant = entrants_[turn].contestant.get();
    const auto elapsed =
        row_.kind == CaseKind::kCold ? contestant->Cold(row_.argv, 0) : contestant->Exec(row_.argv);
    if (!elapsed) return Fail(turn, elapsed.error().what);
    if (keep) result_.entries[turn].samples.push_back(*elapsed);
  }
  void TakeBurst(size_t turn, bool keep) {
    const BurstRound round = RunBurst(row_, plan_.burst, entrants_[turn].contestant.get());
    if (round.failed && round.failed->code == Code::kUnsupported)
      return Fail(turn, round.failed->what);
    if (round.failed)
      return Fail(turn, std::to_string(plan_.burst - round.samples.size()) + " of " +
                            std::to_string(plan_.burst) + " failed: " + round.failed->what);
    if (!keep) return;
    auto& samples = result_.entries[turn].samples;
    samples.insert(samples.end(), round.samples.begin(), round.samples.end());
    rates_[turn].push_back(round.per_second);
  }

  const CaseRow& row_;
  const Plan& plan_;
  std::vector<Entrant>& entrants_;
  std::vector<std::vector<double>> rates_;
  CaseResult result_;
};

}  // namespace

std::span<const CaseRow> AllCases() { return kCases; }

std::vector<Entrant> PrepareEntrants(const Setup& setup, const Plan& plan,
                                     const std::vector<std::string>& only) {
  std::vector<Entrant> entrants;
  for (const ContestantRow& row : AllContestants()) {
    if (!only.empty() && std::find(only.begin(), only.end(), row.name) == only.end()) continue;
    Entrant entrant = {.row = &row, .contestant = nullptr, .reason = {}};
    if (*row.program != '\0' && !ProgramExists(row.program)) {
      entrant.reason = "absent";
    } else if (entrant.contestant = row.make(setup); entrant.contestant == nullptr) {
      continue;  // not asked for
    } else if (const Status ready = entrant.contestant->Prepare(plan.burst); !ready) {
      entrant.reason = "not usable here: " + ready.error().what;
      entrant.contestant.reset();
    }
    entrants.push_back(std::move(entrant));
  }
  return entrants;
}

CaseResult Measure(const CaseRow& row, const Plan& plan, std::vector<Entrant>* entrants) {
  return CaseRun(row, plan, entrants).Run();
}

}  // namespace hutch::tools
