// Places where a crash is tried: the environment variable HUTCH_FAULT names one, "NAME", or
// "NAME#N" for the Nth time it is reached, and the process that reaches it is ended by SIGKILL, at
// once. Without the variable a place costs one comparison. Only hutchd has such places: nothing
// that runs inside a sandbox is linked with this.
#pragma once

#include <array>
#include <string_view>

namespace hutch {

// Around what is made durable and told. The rows of a table of steps have places of their own,
// named after the rows: StepFault().
inline constexpr std::array kFaultPoints = std::to_array<std::string_view>({
    "state file unwritten",   "state file written",    "state file of a sandbox read",
    "answer unsent",          "answer sent",           "sandbox ending",
    "sandbox killed",         "sandbox removed",       "sandbox removed and told",
    "layer renamed",          "image blobs written",   "index unwritten",
    "index written",          "garbage moved away",    "process record unwritten",
    "process record written", "process end unwritten", "process end written",
    "log segment data made",  "log segment begun",     "log segment removed",
    "log bytes moved",        "key remembered",        "network set",
    "network saved",          "port reserved",         "port saved",
    "pause frozen",           "pause recorded",        "resume recorded",
    "resume thawed",          "listeners handed over", "drained for a successor",
    "predecessor gone",
});

namespace internal {
extern const bool fault_wanted;
void ReachFault(std::string_view prefix, std::string_view name);
void NoSuchPlace();  // never defined: a call is no constant expression
constexpr bool IsFaultPoint(std::string_view name) {
  for (const std::string_view known : kFaultPoints)
    if (known == name) return true;
  return false;
}
}  // namespace internal

// A name that is in the list; any other does not compile.
class FaultName {
 public:
  consteval FaultName(const char* name) : name_(name) {
    if (!internal::IsFaultPoint(name_)) internal::NoSuchPlace();
  }
  constexpr std::string_view text() const { return name_; }

 private:
  std::string_view name_;
};

inline void FaultPoint(FaultName name) {
  if (internal::fault_wanted) internal::ReachFault("", name.text());
}

enum class StepMoment { kBefore, kAfter, kBeforeUndo, kAfterUndo };
inline constexpr std::string_view kStepMoments[] = {"before ", "after ", "before undoing ",
                                                    "after undoing "};
inline void StepFault(StepMoment moment, std::string_view row) {
  if (internal::fault_wanted) internal::ReachFault(kStepMoments[static_cast<size_t>(moment)], row);
}

// Takes the variable out of the environment, so that no program this one starts has it.
void TakeFaultVariable();

}  // namespace hutch
