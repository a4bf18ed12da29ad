// Whoever answers a case: our optimized code, a simulated kernel, a mutant, a stranger's process.
// None has privileges.

#ifndef REFERENCE_SPEC_IMPLEMENTATION_H_
#define REFERENCE_SPEC_IMPLEMENTATION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/attention_space.h"
#include "reference/spec/case.h"
#include "reference/spec/codec_space.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Takes an implementation's answer as it is produced.
class Sink {
 public:
  virtual ~Sink() = default;
  // Announces an output before its first rows.
  virtual void Declare(const std::string& name, DType dtype, const Shape& shape) = 0;
  // Bytes of consecutive elements from first_element on.
  virtual void Write(const std::string& name, int64_t first_element,
                     std::span<const std::byte> bytes) = 0;
};

// Which conventions an implementation's answers follow.
enum class Conventions : uint8_t {
  kAsAsked,           // those that it is asked under
  kOwnButMaskedRows,  // its own profile, but for what becomes of fully masked rows
  kOwn,               // its own profile
};

struct Capabilities {
  std::string name;
  std::string version;
  std::vector<std::string> kinds;  // "codec", "attention", ...
  Plan plan;
  Profile profile;
  // What is there of the kinds, so that cases are drawn which it can answer. Empty: everything.
  std::vector<AttentionSpace> attention_spaces{};
  std::vector<CodecSpace> codec_spaces{};
  // Whether `plan` is how it computes, whatever it is asked under; else it follows what it was
  // made with.
  bool states_plan = false;
  Conventions conventions = Conventions::kAsAsked;
  // Another project's, in a process of its own: named with its version, and held to a time limit
  // where it answers, so that a loss is an ImplementationLoss.
  bool foreign = false;
  std::vector<std::string> warnings{};  // of what is judged, said before the first verdict
};

// kUnsupported: the case is declined. kRefused: it is called illegal, which no legal case may be.
enum class RunOutcome { kAnswered, kUnsupported, kRefused };

class Implementation {
 public:
  virtual ~Implementation() = default;
  virtual Capabilities GetCapabilities() const = 0;
  // inputs: the tensors of InputSpecs(c), already checked. Errors: ImplementationLoss.
  virtual RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) = 0;
  // Threads of the next Run, on which the answer does not depend. False: nobody can choose them.
  virtual bool SetThreads(int) { return false; }
  // Why the last case was declined or refused; "": not said.
  virtual std::string Reason() const { return ""; }
  // How the last answer was computed, where that is not what the capabilities say; else null. Valid
  // until the next Run.
  virtual const Plan* AnswerPlan() const { return nullptr; }
  virtual const Profile* AnswerProfile() const { return nullptr; }
};

// Keeps an answer in memory, as an ObservedSource.
class MemorySink : public Sink, public ObservedSource {
 public:
  MemorySink() = default;
  explicit MemorySink(TensorMap tensors);
  void Declare(const std::string& name, DType dtype, const Shape& shape) override;
  void Write(const std::string& name, int64_t first_element,
             std::span<const std::byte> bytes) override;
  const OutputInfo* Find(const std::string& name) const override;
  std::vector<std::string> Names() const override;
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override;
  TensorMap& tensors() { return tensors_; }
  const TensorMap& tensors() const { return tensors_; }

 private:
  TensorMap tensors_;
  std::map<std::string, OutputInfo> infos_;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_IMPLEMENTATION_H_
