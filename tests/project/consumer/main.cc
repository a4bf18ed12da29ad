// Parses and prints a case through an installed kvcheck.

#include <cstdio>
#include <string>

#include "reference/spec/case.h"

int main() {
  const std::string text =
      "attention b=1 hq=8 hkv=2 l=1 t=64 d=64 q=f16 k=affine:4:g64:f16 v=f16 out=f16 "
      "mask=causal_bottom_right scale=0.125 data=gauss:1";
  const std::string printed = kvcheck::Print(kvcheck::ParseCase(text));
  std::puts(printed.c_str());
  return printed == text ? 0 : 1;
}
