// Runs every case with every contestant in turn, so that the host's noise hits all alike.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/contestant.h"

namespace hutch::tools {

enum class CaseKind { kCold, kExec, kBurst, kBurstCreate, kCopy };

struct CaseRow {
  const char* name;   // for --cases
  const char* title;  // for people
  CaseKind kind;
  Argv argv;
};
std::span<const CaseRow> AllCases();

struct Plan {
  size_t runs = 50;
  size_t warmup = 5;
  size_t burst = 100;
  size_t burst_runs = 3;
  unsigned pause_ms = 20;  // before each run: lets what the last one left behind end
  uint64_t copy_bytes = uint64_t{1} << 30;
  size_t copy_files = 10'000;
  size_t copy_runs = 3;
};

struct Entry {
  std::string contestant;
  std::string reason;                // why there are no samples; empty otherwise
  std::vector<double> samples = {};  // milliseconds
  double per_second = 0;  // bursts: the median of the rounds; copies: 10^6 bytes at the median
};
struct CaseResult {
  const CaseRow* row = nullptr;
  std::vector<Entry> entries;
};

struct Entrant {
  const ContestantRow* row = nullptr;
  std::unique_ptr<Contestant> contestant;  // nullptr: not usable
  std::string reason;
};

// Makes and prepares contestants; those that are absent or do not work here keep their reason.
std::vector<Entrant> PrepareEntrants(const Setup& setup, const Plan& plan,
                                     const std::vector<std::string>& only);
CaseResult Measure(const CaseRow& row, const Plan& plan, std::vector<Entrant>* entrants);

}  // namespace hutch::tools
