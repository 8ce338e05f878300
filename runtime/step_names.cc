#include "runtime/step_names.h"

#include "base/fault_point.h"
#include "runtime/creation.h"

namespace hutch::runtime {
namespace {

template <class Context>
void AddRows(std::span<const StepRow<Context>> rows, std::vector<std::string>* names) {
  const auto add = [names](StepMoment moment, const char* row) {
    names->push_back(std::string(kStepMoments[static_cast<size_t>(moment)]) + row);
  };
  for (const StepRow<Context>& row : rows) {
    add(StepMoment::kBefore, row.name);
    add(StepMoment::kAfter, row.name);
    if (row.undo == nullptr) continue;
    add(StepMoment::kBeforeUndo, row.name);
    add(StepMoment::kAfterUndo, row.name);
  }
}

}  // namespace

std::vector<std::string> StepFaultNames() {
  std::vector<std::string> names;
  AddRows(ShellSteps(), &names);
  AddRows(CreateSteps(), &names);
  return names;
}

}  // namespace hutch::runtime
