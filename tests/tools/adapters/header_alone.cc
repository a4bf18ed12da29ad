// Compiles when kvcheck_adapter.h needs nothing before it, in each language level that it promises.

#include "tools/adapters/cpp/kvcheck_adapter.h"

namespace {

class Nothing : public kvcheck_adapter::Adapter {
  kvcheck_adapter::Greeting Greet() override { return {}; }
};

}  // namespace

int main() {
  Nothing nothing;
  return kvcheck_adapter::Serve(nothing);
}
