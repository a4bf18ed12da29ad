// The tool with caches that misbehave beyond what a mutant of the model may: they crash, hang and
// throw in rare states. What is asked of them is the contract otherwise.

#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

#include "reference/cache/model_cache.h"
#include "tools/kvcheck/cache_implementations.h"
#include "tools/kvcheck/tool_main.h"

namespace kvcheck {
namespace {

// Runs `misbehave` at a trim of rows that have all been retained for a while, or at any filter to
// nothing.
void Register(const char* name, void (*misbehave)()) {
  RegisterCacheImplementation(name, [=] {
    CacheRules rules;
    rules.legal = [misbehave](const CacheCall& call, std::string_view*) {
      if (call.op != CacheOpKind::kTrim || call.count < 1) return;
      if (call.state->rows.size() == 2 && call.state->rows[0].offset >= 2) misbehave();
    };
    return std::make_unique<ModelFactory>(rules, name);
  });
}

void Hang() {
  volatile unsigned turns = 0;
  while (true) turns = turns + 1;
}

void Write() {
  volatile int* nowhere = nullptr;
  *nowhere = 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  using namespace kvcheck;
  Register("selftest:abort", [] { abort(); });
  Register("selftest:segv", Write);
  Register("selftest:hang", Hang);
  Register("selftest:throw", [] { throw std::runtime_error("out of columns"); });
  Register("selftest:exit", [] { _Exit(0); });
  return ToolMain(argc, argv);
}
