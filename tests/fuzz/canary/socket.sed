# file: tierd/front/context.c
# A creation that failed keeps its place among the questions.
# SPDX-License-Identifier: Apache-2.0
/control_forget(p);/{
N
s/control_forget(p);\n\(.*create_failed\)/\1/
}
