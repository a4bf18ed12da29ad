// The implementations that a command line can name:
//   simulated        the simulated kernel under the plan that judges it
//   simulated:PLAN   the simulated kernel under another plan
//   small_kernel     the kernel whose steps the faults of kernels replace
//   fault:ID         the simulated kernel, the reference codec or the small kernel with the rule of
//                    a catalogued fault replaced
//   reference        the reference's own encoder and decoder (a check of itself)
//   optimized        kvcheck's own codecs and attention
//   optimized:portable   the same attention with the same bits on every instruction set
//   others           in processes of their own: adapters.h
// Those of cache cases: cache_implementations.h.

#ifndef TOOLS_CORRIDOR_IMPLEMENTATIONS_H_
#define TOOLS_CORRIDOR_IMPLEMENTATIONS_H_

#include <memory>
#include <string>
#include <string_view>

#include "reference/spec/implementation.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

// plan: for `simulated` and `fault:ID`. limits: of an implementation in another process. Errors:
// kUsage for an unknown name, listing the names; kParse; kUnsupported for a process that does not
// greet.
std::unique_ptr<Implementation> MakeImplementation(const std::string& text, const Plan& plan,
                                                   const Profile& profile,
                                                   const RemoteLimits& limits = {});

// How the named implementation says that it computes, where it says so: for whoever asks without
// naming a plan or a profile. kind: of the cases.
struct StatedAnswer {
  std::string plan;  // "": whatever the case is judged under
  Profile profile;
};
// Errors: none for a name that does not exist; kUnsupported for a process that does not greet.
StatedAnswer StatedBy(const std::string& name, std::string_view kind,
                      const RemoteLimits& limits = {});

// The implementation that a case runs on where none is named: optimized, never one whose values
// judge it. Errors: kUsage when there is none.
std::string DefaultImplementation(const Case& c);

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
