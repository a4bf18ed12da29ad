// The rows of the registry (registry.h) that this program brings.

#ifndef TOOLS_CORRIDOR_IMPLEMENTATIONS_H_
#define TOOLS_CORRIDOR_IMPLEMENTATIONS_H_

#include <string>
#include <vector>

#include "reference/spec/implementation.h"
#include "tools/corridor/registry.h"
#include "tools/faults/fault_table.h"

namespace kvcheck {

// In the order in which they are listed; of each kind the default comes first.
std::vector<ImplementationRow> RowsOfThisProgram();
// Of adapters and command lines, which have no name of their own in the table.
ImplementationRow RowOfProcesses();

// Who answers as a fault of the kind does, without the fault; and the name of the fault itself.
std::string HealthyName(FaultKind kind);
std::string FaultyName(const Fault& fault);

// Encodes and decodes by reference/formats.
class ReferenceCodec : public Implementation {
 public:
  explicit ReferenceCodec(const Profile& profile) : profile_(profile) {}
  Capabilities GetCapabilities() const override;
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;

 private:
  Profile profile_;
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_IMPLEMENTATIONS_H_
