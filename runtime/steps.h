// Creation as data: rows that run downwards, and whose undo column runs upwards; delete and crash
// recovery use the same column.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "base/fault_point.h"
#include "base/result.h"
#include "runtime/sandbox.h"

namespace hutch::runtime {

template <class Context>
struct StepRow {
  const char* name;
  Status (*run)(Context&);
  Status (*undo)(Context&);  // idempotent: "already gone" is success; nullptr when nothing outlives
                             // the process
};

// Undoes every row, last first. Stops at the first error, so that calling again later goes on
// there.
template <class Context>
Status UndoSteps(std::span<const StepRow<Context>> rows, Context& context) {
  for (size_t i = rows.size(); i-- > 0;) {
    if (rows[i].undo == nullptr) continue;
    StepFault(StepMoment::kBeforeUndo, rows[i].name);
    Status status = rows[i].undo(context);
    StepFault(StepMoment::kAfterUndo, rows[i].name);
    if (status) continue;
    Error error = std::move(status).error();
    error.step = rows[i].name;
    return error;
  }
  return OkStatus();
}

// Runs every row and notes how long each took. On failure undoes the rows so far; a failed undo is
// appended to the error's text.
template <class Context>
Status RunSteps(std::span<const StepRow<Context>> rows, Context& context,
                std::vector<Timing>* timings) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    StepFault(StepMoment::kBefore, rows[i].name);
    Status status = rows[i].run(context);
    StepFault(StepMoment::kAfter, rows[i].name);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    timings->push_back({rows[i].name, took.count()});
    if (status) continue;
    Error error = std::move(status).error();
    if (*error.step == '\0') error.step = rows[i].name;
    const Status undone = UndoSteps(rows.first(i + 1), context);
    if (!undone) error.what += "; and undoing it: " + undone.error().ToString();
    return error;
  }
  return OkStatus();
}

}  // namespace hutch::runtime
