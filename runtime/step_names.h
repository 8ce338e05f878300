// The tables of steps by name, for those who list what can be interrupted.
#pragma once

#include <string>
#include <vector>

namespace hutch::runtime {

// What StepFault() (base/fault_point.h) is called with, for every row of every table.
std::vector<std::string> StepFaultNames();

}  // namespace hutch::runtime
